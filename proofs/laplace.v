(* Discrete Laplace noise on integer vectors, and sketch and noise together: laplace.md, Lemma 1, where all weights are
   1. g stands for e^(1/s). The chance of a noise z is proportional to g^(-|z|) with one constant for all data, so ratios
   of weights are ratios of chances. *)
Require Import QArith List Permutation Lia Lqa ZArith.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance sparse_sums race_sketch distance_sketches differential_privacy privacy_filter.
Open Scope Q_scope.

Section Laplace.
Variable g : Q. Hypothesis g1 : 1 <= g.
Definition inv_g := / g.
Lemma gr : inv_g * g == 1. Proof. unfold inv_g. field. lra. Qed.
Lemma r_pos : 0 <= inv_g. Proof. unfold inv_g. apply Qlt_le_weak, Qinv_lt_0_compat. lra. Qed.
Lemma r_le : inv_g <= 1. Proof. pose proof gr. pose proof r_pos. nra. Qed.
Definition wt (z : Z) : Q := qpow inv_g (Z.abs_nat z).
Lemma wt_pos : forall z, 0 <= wt z. Proof. intro. apply qpow_pos, r_pos. Qed.
Lemma anti : forall m n, (m <= n)%nat -> qpow inv_g n <= qpow inv_g m.
Proof. intros m n H. replace n with (m + (n - m))%nat by lia. rewrite qpow_add.
  assert (forall k, qpow inv_g k <= 1) as L.
  { induction k; cbn [qpow]; [lra|]. pose proof r_le. pose proof r_pos. pose proof (qpow_pos inv_g k r_pos). nra. }
  specialize (L (n - m)%nat). pose proof (qpow_pos inv_g m r_pos). nra. Qed.
Lemma cancel : forall n, qpow inv_g n * qpow g n == 1.
Proof. induction n; cbn [qpow]; [reflexivity|]. setoid_replace (inv_g * qpow inv_g n * (g * qpow g n)) with ((inv_g * g) * (qpow inv_g n * qpow g n)) by ring.
  rewrite gr, IHn. reflexivity. Qed.
Lemma shift : forall o x y, wt (o - x) <= qpow g (Z.abs_nat (x - y)) * wt (o - y).
Proof. intros o x y. unfold wt. set (a := Z.abs_nat (o - x)). set (b := Z.abs_nat (o - y)). set (d := Z.abs_nat (x - y)).
  assert (b <= a + d)%nat as L by (unfold a, b, d; lia). pose proof (anti b (a + d) L) as H. rewrite qpow_add in H.
  pose proof (cancel d) as C. pose proof (qpow_pos g d ltac:(lra)) as P.
  setoid_replace (qpow inv_g a) with (qpow g d * (qpow inv_g a * qpow inv_g d)); [nra|].
  setoid_replace (qpow g d * (qpow inv_g a * qpow inv_g d)) with (qpow inv_g a * (qpow inv_g d * qpow g d)) by ring. rewrite C. ring. Qed.

(* Independent noise on k cells. *)
Fixpoint vw (o x : nat -> Z) (k : nat) : Q := match k with O => 1 | S j => vw o x j * wt (o j - x j) end.
Lemma vw_pos : forall o x k, 0 <= vw o x k.
Proof. induction k; cbn [vw]; [lra|]. apply Qmult_le_0_compat; [assumption|apply wt_pos]. Qed.

(* At L1 distance d every output's chance changes by a factor of at most e^(d/s). *)
Theorem laplace_l1 : forall o x y k, vw o x k <= qpow g (Z.to_nat (upto (fun i => Z.abs (x i - y i)) k)) * vw o y k.
Proof. intros o x y k. induction k as [|k IH]; [cbn; lra|]. cbn [vw upto].
  assert (0 <= upto (fun i => Z.abs (x i - y i)) k)%Z by (apply upto_pos; intro; lia).
  rewrite Z2Nat.inj_add by lia. rewrite qpow_add.
  replace (Z.to_nat (Z.abs (x k - y k))) with (Z.abs_nat (x k - y k)) by lia.
  set (A := qpow g (Z.to_nat (upto (fun i => Z.abs (x i - y i)) k))) in *. set (D := qpow g (Z.abs_nat (x k - y k))) in *.
  setoid_replace (A * D * (vw o y k * wt (o k - y k))) with ((A * vw o y k) * (D * wt (o k - y k))) by ring.
  apply mul_le; [apply vw_pos|apply wt_pos|assumption|apply shift]. Qed.
Theorem laplace_bound : forall o x y k n, (upto (fun i => Z.abs (x i - y i)) k <= n)%Z -> vw o x k <= qpow g (Z.to_nat n) * vw o y k.
Proof. intros o x y k n H. pose proof (laplace_l1 o x y k). pose proof (qpow_mono g (Z.to_nat (upto (fun i => Z.abs (x i - y i)) k)) (Z.to_nat n) g1 ltac:(lia)).
  pose proof (vw_pos o y k). nra. Qed.

(* Attained by one cell. *)
Theorem laplace_tight : forall d : nat, wt (0 - 0) == qpow g d * wt (0 - Z.of_nat d).
Proof. intro d. unfold wt. replace (Z.abs_nat (0 - Z.of_nat d)) with d by lia. change (Z.abs_nat (0 - 0)) with 0%nat.
  rewrite Qmult_comm. rewrite cancel. reflexivity. Qed.

(* A record adds a vector of L1 norm at most c; discrete Laplace noise on every cell of the sum: at symmetric distance n
   the loss is at most c n / s. *)
Theorem release : forall k R eqR (f : R -> vec) (c : Z), (0 <= c)%Z -> (forall r, L1 k (f r) c) ->
  forall xs ys n, (distance R eqR xs ys <= n)%nat -> forall o, vw o (total R f xs) k <= qpow g (Z.to_nat (c * Z.of_nat n)) * vw o (total R f ys) k.
Proof. intros k R eqR f c Hc Hf xs ys n Hn o. apply laplace_bound. apply (l1_sensitivity k R eqR f c Hc Hf xs ys n Hn). Qed.

(* race_sketch and then Laplace noise: (R + w) n / s. *)
Theorem race_release : forall Rep W L w R eqR label hash, (0 <= w)%Z -> (1 <= Rep)%nat -> (forall r : R, (label r < L)%nat) -> (forall r b, (b < Rep)%nat -> (hash r b < W)%nat) ->
  forall xs ys n, (distance R eqR xs ys <= n)%nat -> forall o,
  vw o (total R (race Rep W L w R label hash) xs) (k Rep W L) <= qpow g (Z.to_nat ((Z.of_nat Rep + w) * Z.of_nat n)) * vw o (total R (race Rep W L w R label hash) ys) (k Rep W L).
Proof. intros Rep W L w R eqR label hash Hw Hrep Hl Hh xs ys n Hn o. apply release with (eqR := eqR); [lia| |assumption].
  intro r. unfold L1. rewrite race_l1 by (first [assumption | lia | auto]). lia. Qed.

(* distance_tree and then Laplace noise: (H + 1) sum u n / s. *)
Theorem tree_release : forall H d L u R eqR label leaf, (forall j, (0 <= u j)%Z) -> (forall r : R, (label r < L)%nat) -> (forall r j, (leaf r j < 2 ^ H)%nat) ->
  forall xs ys n, (distance R eqR xs ys <= n)%nat -> forall o,
  vw o (total R (tree H d L u R label leaf) xs) (k (d * S H) (2 ^ H) L)
   <= qpow g (Z.to_nat (Z.of_nat (S H) * upto u d * Z.of_nat n)) * vw o (total R (tree H d L u R label leaf) ys) (k (d * S H) (2 ^ H) L).
Proof. intros H d L u R eqR label leaf Hu Hl Hleaf xs ys n Hn o. apply laplace_bound.
  apply (tree_stability H d L u Hu R eqR label leaf Hl Hleaf xs ys n Hn). Qed.

(* The hypotheses of the filter can be met: every question, chosen from the answers so far, counts the records near it
   that have a unit left, with discrete Laplace noise; a record that is counted pays one unit. *)
Variable R : Type. Variable near_to : R -> list Z -> bool. Variable U : nat.
Definition unit_price (r : R) (p : list Z) : nat := if near_to r p then 1 else 0.
Definition counting (p : list Z) (D : list R) (o : Z) : Q := wt (o - Z.of_nat (length (filter (fun r => near_to r p) D))).
Theorem counting_filter : forall eqR xs ys, close (qpow (qpow g U) (distance R eqR xs ys))
  (prob Z (fun p => service R Z U unit_price counting p xs) []) (prob Z (fun p => service R Z U unit_price counting p ys) []).
Proof. intros. apply (dropping_filter R Z U unit_price g g1 counting).
  - intros. apply wt_pos.
  - intros p D D' o P. unfold counting. rewrite (Permutation_length (filter_perm R (fun r => near_to r p) D D' P)). reflexivity.
  - intros p r D o. unfold counting, unit_price. cbn [List.filter]. destruct (near_to r p); cbn [qpow length]; [|lra].
    set (n := length (List.filter (fun r => near_to r p) D)). pose proof (shift o (Z.of_nat (S n)) (Z.of_nat n)) as H.
    replace (Z.abs_nat (Z.of_nat (S n) - Z.of_nat n)) with 1%nat in H by lia. cbn [qpow] in H. exact H.
  - intros p r D o. unfold counting, unit_price. cbn [List.filter]. destruct (near_to r p); cbn [qpow length]; [|lra].
    set (n := length (List.filter (fun r => near_to r p) D)). pose proof (shift o (Z.of_nat n) (Z.of_nat (S n))) as H.
    replace (Z.abs_nat (Z.of_nat n - Z.of_nat (S n))) with 1%nat in H by lia. cbn [qpow] in H. exact H. Qed.
End Laplace.
