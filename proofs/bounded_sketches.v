(* Sketches whose records add bounded lists of values: fourier_sketch.md, Lemma 1; gauss_transform_sketch.md, Lemma 1;
   moments_sketch.md, Lemma 1; slice_sketch.md, Lemma 2. *)
Require Import ZArith List Lia Permutation.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance sparse_sums executable sketch_claims.
Open Scope Z_scope.

(* A record adds the value val r b to one cell of each of B blocks, and w to its class's total. The sums of sizes and of
   squares of these values are bounded, and each of them. *)
Theorem bounded_values : forall B W L w R eq_dec (label : R -> nat) at_ val A C m, 0 <= w -> 0 <= A -> 0 <= C -> 0 <= m ->
  (forall r, (label r < L)%nat) -> (forall r b, (b < B)%nat -> (at_ r b < W)%nat) ->
  (forall r, upto (fun b => Z.abs (val r b)) B <= A) -> (forall r, upto (fun b => val r b * val r b) B <= C) ->
  (forall r b, (b < B)%nat -> Z.abs (val r b) <= m) -> forall xs ys d, (distance R eq_dec xs ys <= d)%nat ->
  let f := feat B W L w R label at_ val in within (k B W L) (A + w, C + w * w, Z.max m w) (vsub (total R f xs) (total R f ys)) (Z.of_nat d).
Proof. intros B W L w R eq_dec label at_ val A C m Hw HA HC Hm Hl Ha H1 H2 H3 xs ys d Hd f. split; [|split].
  - apply (l1_sensitivity (k B W L) R eq_dec f (A + w)); [lia| |assumption]. intro r. unfold L1, f. rewrite feat_l1 by auto. specialize (H1 r). lia.
  - apply (squared_l2_sensitivity (k B W L) R eq_dec f); [nia| |assumption]. intro r. unfold f. rewrite feat_l2 by auto. specialize (H2 r). lia.
  - apply (linf_sensitivity (k B W L) R eq_dec f (Z.max m w)); [lia| |assumption]. intro r. split; [lia|]. intros i _.
    unfold f, feat. apply (sparse_values _ (fun z => Z.abs z <= Z.max m w)); [lia|].
    intros e He. unfold entries in He. simpl in He. destruct He as [<-|He]; [simpl; lia|].
    apply in_map_iff in He. destruct He as (b & <- & Hb). apply in_seq in Hb. simpl. specialize (H3 r b ltac:(lia)). lia. Qed.

(* Random frequencies: block 2 j has the first and block 2 j + 1 the second number of the pair of frequency j, which the
   record's phase picks from a table; a bounds the sum of sizes of a pair, q its squared length, m its numbers. *)
Definition pair_of (table : nat -> Z * Z) (phase : nat -> nat) (b : nat) : Z :=
  let p := table (phase (Nat.div2 b)) in if Nat.even b then fst p else snd p.
Lemma pairs : forall (g : Z -> Z) (e : nat -> Z) a n, (forall j, (j < n)%nat -> g (e (2 * j)%nat) + g (e (2 * j + 1)%nat) <= a) -> upto (fun b => g (e b)) (2 * n) <= Z.of_nat n * a.
Proof. intros g e a n H. induction n as [|n IH]; [simpl; lia|]. replace (2 * S n)%nat with (S (S (2 * n))) by lia. cbn [upto].
  specialize (IH ltac:(intros; apply H; lia)). specialize (H n ltac:(lia)). replace (2 * n + 1)%nat with (S (2 * n)) in H by lia. rewrite Nat2Z.inj_succ. lia. Qed.
Lemma pair_parts : forall table phase j, pair_of table phase (2 * j) = fst (table (phase j)) /\ pair_of table phase (2 * j + 1) = snd (table (phase j)).
Proof. intros. unfold pair_of. split.
  - rewrite Nat.div2_double. replace (Nat.even (2 * j)) with true; [reflexivity|]. symmetry. apply Nat.even_spec. exists j. lia.
  - replace (2 * j + 1)%nat with (S (2 * j)) by lia. rewrite Nat.div2_succ_double. replace (Nat.even (S (2 * j))) with false; [reflexivity|].
    symmetry. rewrite Nat.even_succ. rewrite <- Nat.negb_even. replace (Nat.even (2 * j)) with true; [reflexivity|]. symmetry. apply Nat.even_spec. exists j. lia. Qed.
Definition fourier_claim (D : nat) (a q m w : Z) : claim := (Z.of_nat D * a + w, Z.of_nat D * q + w * w, Z.max m w).
Theorem fourier_stability : forall D P L w R eq_dec (label : R -> nat) (phase : R -> nat -> nat) (table : nat -> Z * Z) a q m, 0 <= w ->
  (forall r, (label r < L)%nat) -> (forall r j, (phase r j < P)%nat) ->
  (forall p, (p < P)%nat -> Z.abs (fst (table p)) + Z.abs (snd (table p)) <= a /\ fst (table p) * fst (table p) + snd (table p) * snd (table p) <= q /\
     Z.abs (fst (table p)) <= m /\ Z.abs (snd (table p)) <= m) -> (1 <= P)%nat ->
  forall xs ys d, (distance R eq_dec xs ys <= d)%nat ->
  let f := feat (2 * D) 1 L w R label (fun _ _ => 0%nat) (fun r => pair_of table (phase r)) in
  within (k (2 * D) 1 L) (fourier_claim D a q m w) (vsub (total R f xs) (total R f ys)) (Z.of_nat d).
Proof. intros D P L w R eq_dec label phase table a q m Hw Hl Hp Ht HP xs ys d Hd. unfold fourier_claim.
  pose proof (Ht 0%nat ltac:(lia)) as (T1 & T2 & T3 & T4). pose proof (Z.square_nonneg (fst (table 0%nat))). pose proof (Z.square_nonneg (snd (table 0%nat))).
  apply (bounded_values _ _ _ _ R eq_dec); try assumption; try nia; try lia; try (intros; lia).
  - intro r. apply pairs. intros j Hj. destruct (pair_parts table (phase r) j) as [-> ->]. apply (Ht (phase r j)). apply Hp.
  - intro r. apply (pairs (fun z => z * z)). intros j Hj. destruct (pair_parts table (phase r) j) as [-> ->]. apply (Ht (phase r j)). apply Hp.
  - intros r b _. unfold pair_of. destruct (Ht (phase r (Nat.div2 b)) (Hp r _)) as (_ & _ & M1 & M2). destruct (Nat.even b); assumption. Qed.

(* Fields of exponents up to r in each of d columns: moment number e has the size |e|, the sum of its digits in base r, and a
   feature of at most floor(2^(Q - |e|)). *)
Fixpoint digit_sum (r d e : nat) : nat := match d with O => 0 | S d' => (e mod r + digit_sum r d' (e / r))%nat end.
Definition gauss_most (Q r d e : nat) : Z := 2 ^ Z.of_nat Q / 2 ^ Z.of_nat (digit_sum r d e).
Definition gauss_table (Q r d : nat) : list Z := map (gauss_most Q r d) (seq 0 (r ^ d)).
Definition gauss_claim (Q r d : nat) (w : Z) : claim := blocks_claim (gauss_table Q r d) w.
(* Rounding toward zero keeps |p_j| <= 2^(Q - j): a power times a residual of at most half of 2^Q, over 2^Q. *)
Theorem power_bound : forall Q j p u, (S j <= Q)%nat -> Z.abs p <= 2 ^ Z.of_nat (Q - j) -> 2 * Z.abs u <= 2 ^ Z.of_nat Q ->
  Z.abs (Z.quot (p * u) (2 ^ Z.of_nat Q)) <= 2 ^ Z.of_nat (Q - S j).
Proof. intros Q j p u Hj Hp Hu. assert (P : 0 < 2 ^ Z.of_nat Q) by (apply Z.pow_pos_nonneg; lia).
  rewrite <- Z.quot_abs by lia. rewrite (Z.abs_eq (2 ^ Z.of_nat Q)) by lia. rewrite Z.quot_div_nonneg by lia. rewrite Z.abs_mul.
  assert (E : 2 ^ Z.of_nat (Q - j) = 2 * 2 ^ Z.of_nat (Q - S j)).
  { replace (Z.of_nat (Q - j)) with (Z.succ (Z.of_nat (Q - S j))) by lia. rewrite Z.pow_succ_r by lia. reflexivity. }
  assert (0 < 2 ^ Z.of_nat (Q - S j)) by (apply Z.pow_pos_nonneg; lia).
  apply Z.div_le_upper_bound; [lia|]. nia. Qed.
Theorem gauss_stability : forall Q r d W L w R eq_dec (label : R -> nat) at_ val, 0 <= w ->
  (forall x, (label x < L)%nat) -> (forall x b, (b < r ^ d)%nat -> (at_ x b < W)%nat) ->
  (forall x e, (e < r ^ d)%nat -> Z.abs (val x e) <= gauss_most Q r d e) -> forall xs ys n, (distance R eq_dec xs ys <= n)%nat ->
  let B := length (gauss_table Q r d) in let f := feat B W L w R label at_ val in
  within (k B W L) (gauss_claim Q r d w) (vsub (total R f xs) (total R f ys)) (Z.of_nat n).
Proof. intros Q r d W L w R eq_dec label at_ val Hw Hl Ha Hv xs ys n Hn B f. assert (LB : length (gauss_table Q r d) = (r ^ d)%nat) by (unfold gauss_table; rewrite map_length, seq_length; reflexivity).
  apply (blocks_claimed (gauss_table Q r d) W L w R eq_dec label at_ val); try assumption.
  - intros x Hx. unfold gauss_table in Hx. apply in_map_iff in Hx. destruct Hx as (e & <- & _). unfold gauss_most. apply Z.div_pos; [lia|apply Z.pow_pos_nonneg; lia].
  - intros x b Hb. apply Ha. rewrite <- LB. assumption.
  - intros x b Hb. rewrite LB in Hb. specialize (Hv x b Hb). unfold gauss_table. rewrite (nth_indep _ 0 (gauss_most Q r d 0)) by (rewrite map_length, seq_length; assumption).
    rewrite map_nth, seq_nth by assumption. exact Hv. Qed.

(* moments_sketch.md, Lemma 1. Block j < d has u1 x_j, block d has u2 floor(|x|^2 / 2^t), and the total u0. B2 bounds |x|^2, s
   the sum of sizes and m each of them. *)
Definition moments_value (d : nat) (u1 u2 t : Z) (x : nat -> Z) (b : nat) : Z :=
  if Nat.ltb b d then u1 * x b else u2 * (upto (fun i => x i * x i) d / 2 ^ t).
Definition moments_claim (u0 u1 u2 t B2 s m : Z) : claim :=
  let q := u2 * (B2 / 2 ^ t) in (u1 * s + q + u0, u1 * u1 * B2 + q * q + u0 * u0, Z.max (Z.max (u1 * m) q) u0).


Theorem moments_stability : forall d L u0 u1 u2 t B2 s m R eq_dec (label : R -> nat) (x : R -> nat -> Z), 0 <= u0 -> 0 <= u1 -> 0 <= u2 -> 0 <= t -> 0 <= B2 -> 0 <= s -> 0 <= m ->
  (forall r, (label r < L)%nat) -> (forall r, upto (fun i => x r i * x r i) d <= B2) -> (forall r, upto (fun i => Z.abs (x r i)) d <= s) ->
  (forall r i, (i < d)%nat -> Z.abs (x r i) <= m) -> forall xs ys n, (distance R eq_dec xs ys <= n)%nat ->
  let f := feat (S d) 1 L u0 R label (fun _ _ => 0%nat) (fun r => moments_value d u1 u2 t (x r)) in
  within (k (S d) 1 L) (moments_claim u0 u1 u2 t B2 s m) (vsub (total R f xs) (total R f ys)) (Z.of_nat n).
Proof. intros d L u0 u1 u2 t B2 s m R eq_dec label x H0 H1 H2 Ht HB Hs Hm Hl Hx Hx1 Hxi xs ys n Hn. unfold moments_claim.
  assert (P : 0 < 2 ^ t) by (apply Z.pow_pos_nonneg; lia). set (q := u2 * (B2 / 2 ^ t)).
  assert (Q0 : 0 <= B2 / 2 ^ t) by (apply Z.div_pos; lia). assert (q0 : 0 <= q) by (unfold q; nia).
  assert (V : forall r, 0 <= u2 * (upto (fun i => x r i * x r i) d / 2 ^ t) <= q).
  { intro r. assert (0 <= upto (fun i => x r i * x r i) d) by (apply upto_pos; intro; apply Z.square_nonneg).
    assert (0 <= upto (fun i => x r i * x r i) d / 2 ^ t) by (apply Z.div_pos; lia).
    assert (upto (fun i => x r i * x r i) d / 2 ^ t <= B2 / 2 ^ t) by (apply Z.div_le_mono; [lia|apply Hx]). unfold q. nia. }
  assert (E : forall r (g : Z -> Z), upto (fun b => g (moments_value d u1 u2 t (x r) b)) (S d) = upto (fun i => g (u1 * x r i)) d + g (u2 * (upto (fun i => x r i * x r i) d / 2 ^ t))).
  { intros r g. cbn [upto]. f_equal.
    - apply upto_eq_lt. intros i Hi. unfold moments_value. destruct (Nat.ltb_spec i d); [reflexivity|lia].
    - unfold moments_value. destruct (Nat.ltb_spec d d); [lia|reflexivity]. }
  apply (bounded_values _ _ _ _ R eq_dec); try assumption; try (intros; lia); try nia.
  - intro r. rewrite E. rewrite (upto_eq _ (fun i => u1 * Z.abs (x r i))) by (intro; rewrite Z.abs_mul, (Z.abs_eq u1) by assumption; reflexivity).
    rewrite upto_scale. specialize (Hx1 r). destruct (V r). nia.
  - intro r. rewrite (E r (fun z => z * z)). rewrite (upto_eq _ (fun i => u1 * u1 * (x r i * x r i))) by (intro; ring). rewrite upto_scale. specialize (Hx r). destruct (V r). nia.
  - intros r b Hb. unfold moments_value. destruct (Nat.ltb_spec b d) as [Hi|Hi].
    + rewrite Z.abs_mul, (Z.abs_eq u1) by assumption. specialize (Hxi r b Hi). nia.
    + destruct (V r). lia. Qed.

(* slice_sketch.md, Lemma 2. Direction j of k has a level s_j, a class i_j of its dither and the size a_j of its projection, in
   one unit; q i s is at most a_j wherever the level is s. P bounds a level's squares (or sizes), C >= 0 is any slope. *)
Theorem slice_bound : forall k (P : nat -> Z) (q : nat -> nat -> Z) (A n : nat -> Z) (level class : nat -> nat) (a : nat -> Z) C T I whole, 0 <= C ->
  (forall j, (j < k)%nat -> (level j <= T)%nat /\ (class j < I)%nat /\ 0 <= q (class j) (level j) <= Z.abs (a j)) ->
  (forall i s, (i < I)%nat -> (s <= T)%nat -> P s - C * (q i s * q i s) <= A i) ->
  upto (fun j => A (class j)) k = upto (fun i => n i * A i) I -> upto (fun j => a j * a j) k <= whole ->
  upto (fun j => P (level j)) k <= upto (fun i => n i * A i) I + C * whole.
Proof. intros k P q A n level class a C T I whole HC Hj HA Hn Hw. rewrite <- Hn.
  assert (G : upto (fun j => P (level j)) k <= upto (fun j => A (class j) + C * (a j * a j)) k).
  { apply upto_le_lt. intros j Hk. destruct (Hj j Hk) as (L & I1 & Q0 & Q1). specialize (HA _ _ I1 L).
    assert (q (class j) (level j) * q (class j) (level j) <= a j * a j) by (rewrite <- (Z.abs_square (a j)); nia). nia. }
  rewrite upto_plus, upto_scale in G. nia. Qed.
(* The squares of slices lie between k min P and S, so their distance from the public middle M is at most h. *)
Theorem slice_middle : forall S low x, low <= x <= S -> Z.abs (x - (S + low) / 2) <= Z.max (S - (S + low) / 2) ((S + low) / 2 - low).
Proof. intros. lia. Qed.
