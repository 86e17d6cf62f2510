(* Claims of sketches as functions that run: the L1, squared L2 and L-infinity norms of what one record adds, as the
   certificate's table of formulas has them; each is proved a bound at every distance. *)
Require Import ZArith List Lia Permutation.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance sparse_sums second_moments executable.
Open Scope Z_scope.

Definition claim := (Z * Z * Z)%type.
Definition within (k : nat) (c : claim) (v : vec) (n : Z) := let '(l1, l2, li) := c in
  upto (fun i => Z.abs (v i)) k <= l1 * n /\ dot k v v <= l2 * (n * n) /\ forall i, (i < k)%nat -> Z.abs (v i) <= li * n.

(* Blocks of one cell each, whose values are at most Ds in size, and a count of w: hash tables (1 for each repetition),
   thresholds (1 each), trees (a column's multiplier once a level), moments (the table of their largest values). *)
Definition blocks_claim (Ds : list Z) (w : Z) : claim := (zs Ds + w, zs (map (fun x => x * x) Ds) + w * w, Z.max (zmax Ds) w).
Lemma zs_nth : forall (g : Z -> Z) Ds, upto (fun b => g (nth b Ds 0)) (length Ds) = zs (map g Ds).
Proof. intros g Ds. rewrite <- zs_upto. f_equal. induction Ds as [|x Ds IH]; [reflexivity|].
  cbn [length seq map nth]. f_equal. rewrite <- seq_shift, map_map. exact IH. Qed.
Lemma nth_zmax : forall Ds b, nth b Ds 0 <= zmax Ds.
Proof. induction Ds as [|x Ds IH]; intros [|b]; cbn [nth zmax fold_right]; try lia; try (specialize (IH b)); unfold zmax in *; lia. Qed.
Theorem blocks_claimed : forall Ds W L w R eq_dec (label : R -> nat) at_ val, 0 <= w -> (forall x, In x Ds -> 0 <= x) ->
  (forall r, (label r < L)%nat) -> (forall r b, (b < length Ds)%nat -> (at_ r b < W)%nat) ->
  (forall r b, (b < length Ds)%nat -> Z.abs (val r b) <= nth b Ds 0) -> forall xs ys d, (distance R eq_dec xs ys <= d)%nat ->
  let f := feat (length Ds) W L w R label at_ val in
  within (k (length Ds) W L) (blocks_claim Ds w) (vsub (total R f xs) (total R f ys)) (Z.of_nat d).
Proof. intros Ds W L w R eq_dec label at_ val Hw HD Hl Ha Hv xs ys d Hd f.
  assert (N : forall b, 0 <= nth b Ds 0) by (intro b; destruct (nth_in_or_default b Ds 0) as [H| ->]; [apply HD; assumption|lia]).
  destruct (blocks_stability (length Ds) W L w Hw R eq_dec label at_ val (fun b => nth b Ds 0) Hl Ha N Hv xs ys d Hd) as (A & B & C).
  rewrite (zs_nth (fun x => x)), map_id in A. rewrite (zs_nth (fun x => x * x)) in B. fold f in A, B, C.
  split; [exact A|split; [exact B|]]. apply C; [lia|lia|]. intros b _. pose proof (nth_zmax Ds b). lia. Qed.

(* Products z_i z_j, i <= j, of a record of d columns and a constant A: N bounds the sum of squares, as a box does or, where
   it is less, a radius whose square in these units is `ball`. *)
Definition products_claim (d : nat) (A : Z) (ball : option Z) : claim :=
  let box := (Z.of_nat d + 1) * (A * A) in let N := match ball with Some b => Z.min box b | None => box end in
  let V := Z.sqrt ((Z.of_nat d + 1) * N) in let m := Z.min (A * A) N in ((V * V + N) / 2, (N * N + m * N) / 2, m).
Theorem products_claimed : forall d A ball z, (match ball with Some b => 0 <= b | None => True end) ->
  (forall i, (i < S d)%nat -> z i * z i <= A * A) ->
  (match ball with Some b => upto (fun i => z i * z i) (S d) <= b | None => True end) ->
  let '(l1, l2, li) := products_claim d A ball in let p := products (S d) z in
  zs (map Z.abs p) <= l1 /\ zs (map (fun x => x * x) p) <= l2 /\ forall i j, (i < S d)%nat -> (j < S d)%nat -> Z.abs (z i * z j) <= li.
Proof. intros d A ball z Hb Hz Hn. unfold products_claim. set (box := (Z.of_nat d + 1) * (A * A)). set (N := match ball with Some b => Z.min box b | None => box end).
  assert (S0 : upto (fun i => z i * z i) (S d) <= box).
  { unfold box. replace (Z.of_nat d + 1) with (Z.of_nat (S d)) by lia. assert (forall n, (forall i, (i < n)%nat -> z i * z i <= A * A) -> upto (fun i => z i * z i) n <= Z.of_nat n * (A * A)) as G.
    { induction n as [|n IH]; intro H; [simpl; lia|]. cbn [upto]. specialize (IH ltac:(intros; apply H; lia)). specialize (H n ltac:(lia)). rewrite Nat2Z.inj_succ. nia. }
    apply G. assumption. }
  assert (S1 : upto (fun i => z i * z i) (S d) <= N) by (unfold N; destruct ball; lia).
  assert (N0 : 0 <= N) by (eapply Z.le_trans; [|exact S1]; apply upto_pos; intro; apply Z.square_nonneg).
  assert (M : forall i, (i < S d)%nat -> z i * z i <= Z.min (A * A) N).
  { intros i Hi. apply Z.min_glb; [apply Hz; assumption|]. eapply Z.le_trans; [|exact S1].
    clear - Hi. revert i Hi. generalize (S d). induction n as [|n IH]; intros i Hi; [lia|]. cbn [upto].
    assert (0 <= upto (fun i => z i * z i) n) by (apply upto_pos; intro; apply Z.square_nonneg). pose proof (Z.square_nonneg (z n)).
    destruct (Nat.eq_dec i n) as [->|]; [lia|]. specialize (IH i ltac:(lia)). lia. }
  set (V := Z.sqrt ((Z.of_nat d + 1) * N)).
  assert (T : upto (fun i => Z.abs (z i)) (S d) <= V).
  { unfold V. apply Z.sqrt_le_square; [nia|apply upto_pos; intro; lia|]. pose proof (l1_l2 z (S d)) as C. replace (Z.of_nat d + 1) with (Z.of_nat (S d)) by lia. nia. }
  split; [|split].
  - rewrite products_sum. apply Z.div_le_lower_bound; [lia|]. pose proof (second_moments_l1 z (S d) N V S1 T). lia.
  - rewrite products_sum. apply Z.div_le_lower_bound; [lia|]. pose proof (second_moments_l2 z (S d) N (Z.min (A * A) N) ltac:(nia) S1 M). lia.
  - intros i j Hi Hj. apply second_moments_linf; auto. Qed.

(* A distance after a chain of stable maps is the product of their factors and of what the unit changes. *)
Definition after_chain (factors : list Z) (d : Z) := fold_left Z.mul factors d.
Theorem chain_product : forall factors d, after_chain factors d = d * fold_left Z.mul factors 1.
Proof. unfold after_chain. induction factors as [|f l IH]; intro d; cbn [fold_left]; [lia|]. rewrite IH, (IH (1 * f)). ring. Qed.
