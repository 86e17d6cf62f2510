(* Sums over records. A record adds an integer vector, a function of that record alone. If that vector has norm at most
   c, the sums of two datasets at symmetric distance n differ by norm at most c n: in L1, L2 and L-infinity, and in every
   norm of the record `gauge`. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
Open Scope Z_scope.

(* A vector of integers: a function of the cell's number. Norms look at the first k cells. *)
Definition vec := nat -> Z.
Definition vadd (u v : vec) : vec := fun i => u i + v i.
Definition vneg (u : vec) : vec := fun i => - u i.
Definition vsub (u v : vec) : vec := fun i => u i - v i.
Definition vzero : vec := fun _ => 0.

(* All that the theorem needs of the sentence `the norm of v is at most c`. *)
Record gauge (B : vec -> Z -> Prop) : Prop := {
  g_ext  : forall u v c, (forall i, u i = v i) -> B u c -> B v c;
  g_zero : B vzero 0;
  g_neg  : forall u c, B u c -> B (vneg u) c;
  g_add  : forall u v c d, B u c -> B v d -> B (vadd u v) (c + d);
  g_up   : forall u c d, B u c -> c <= d -> B u d }.

Section Sums.
Variable k : nat.
Fixpoint upto (g : nat -> Z) (n : nat) : Z := match n with O => 0 | S m => upto g m + g m end.
Definition dot (u v : vec) := upto (fun i => u i * v i) k.
Definition L1 (v : vec) (c : Z) := upto (fun i => Z.abs (v i)) k <= c.
Definition L2 (v : vec) (c : Z) := 0 <= c /\ dot v v <= c * c.
Definition Linf (v : vec) (c : Z) := 0 <= c /\ forall i, (i < k)%nat -> Z.abs (v i) <= c.

Lemma upto_le : forall g h n, (forall i, g i <= h i) -> upto g n <= upto h n.
Proof. induction n; simpl; intros H; [lia|]. specialize (IHn H). specialize (H n). lia. Qed.
Lemma upto_eq : forall g h n, (forall i, g i = h i) -> upto g n = upto h n.
Proof. induction n; simpl; intros H; [lia|]. rewrite (IHn H), (H n). lia. Qed.
Lemma upto_plus : forall g h n, upto (fun i => g i + h i) n = upto g n + upto h n.
Proof. induction n; simpl; [lia|]. rewrite IHn. lia. Qed.
Lemma upto_scale : forall g a n, upto (fun i => a * g i) n = a * upto g n.
Proof. induction n; simpl; [lia|]. rewrite IHn. lia. Qed.
Lemma upto_pos : forall g n, (forall i, 0 <= g i) -> 0 <= upto g n.
Proof. induction n; simpl; intros H; [lia|]. specialize (IHn H). specialize (H n). lia. Qed.

Lemma L1_gauge : gauge L1.
Proof. unfold L1; split; intros.
  - rewrite <- (upto_eq (fun i => Z.abs (u i))); [assumption|]. intro; rewrite H; reflexivity.
  - unfold vzero. induction k; simpl in *; lia.
  - unfold vneg. rewrite (upto_eq _ (fun i => Z.abs (u i))); [assumption|]. intro; lia.
  - assert (upto (fun i => Z.abs (vadd u v i)) k <= upto (fun i => Z.abs (u i) + Z.abs (v i)) k)
      by (apply upto_le; unfold vadd; intro; lia). rewrite upto_plus in H1. lia.
  - lia. Qed.

Lemma Linf_gauge : gauge Linf.
Proof. unfold Linf; split; intros.
  - destruct H0. split; [assumption|]. intros i Hi. rewrite <- H. apply H1. exact Hi.
  - split; [lia|]. intros i Hi. apply Z.eq_le_incl. reflexivity.
  - destruct H as [P Q]. split; [assumption|]. intros i Hi. specialize (Q i Hi). unfold vneg. lia.
  - destruct H as [P Q], H0 as [P' Q']. split; [lia|]. intros i Hi. specialize (Q i Hi). specialize (Q' i Hi). unfold vadd. lia.
  - destruct H as [P Q]. split; [lia|]. intros i Hi. specialize (Q i Hi). lia. Qed.

(* Cauchy and Schwarz in integers: the square of d u - c v is not negative. *)
Lemma cauchy_schwarz : forall u v c d, 0 <= c -> 0 <= d -> dot u u <= c * c -> dot v v <= d * d -> dot u v <= c * d.
Proof.
  intros u v c d Hc Hd Hu Hv.
  assert (0 <= d * d * dot u u - 2 * c * d * dot u v + c * c * dot v v) as H.
  { replace (d * d * dot u u - 2 * c * d * dot u v + c * c * dot v v)
      with (upto (fun i => (d * u i - c * v i) * (d * u i - c * v i)) k).
    - apply upto_pos. intro. apply Z.square_nonneg.
    - unfold dot. rewrite <- !upto_scale.
      rewrite (upto_eq _ (fun i => (d * d * (u i * u i) + c * c * (v i * v i)) + (- (2 * c * d)) * (u i * v i)))
        by (intro; ring).
      rewrite !upto_plus, !upto_scale. ring. }
  assert (0 <= dot u u) by (apply upto_pos; intro; apply Z.square_nonneg).
  assert (0 <= dot v v) by (apply upto_pos; intro; apply Z.square_nonneg).
  destruct (Z_le_gt_dec (dot u v) (c * d)) as [|G]; [assumption|exfalso].

  assert (d * d * dot u u <= d * d * (c * c)) by (apply Z.mul_le_mono_nonneg_l; nia).
  assert (c * c * dot v v <= c * c * (d * d)) by (apply Z.mul_le_mono_nonneg_l; nia).
  assert (C : 0 <= (c * d) * (c * d - dot u v)) by nia.
  destruct (Z.eq_dec (c * d) 0) as [E|E]; [|assert (0 < c * d) by nia; nia].
  assert (forall n, upto (fun i => u i * u i) n = 0 \/ upto (fun i => v i * v i) n = 0 ->
                    upto (fun i => u i * v i) n = 0) as Z0.
  { induction n as [|n IH]; simpl; intro Z; [reflexivity|].
    assert (0 <= upto (fun i => u i * u i) n) by (apply upto_pos; intro; apply Z.square_nonneg).
    assert (0 <= upto (fun i => v i * v i) n) by (apply upto_pos; intro; apply Z.square_nonneg).
    pose proof (Z.square_nonneg (u n)). pose proof (Z.square_nonneg (v n)).
    destruct Z as [Z|Z].
    - assert (u n * u n = 0) by lia. assert (u n = 0) as -> by nia. rewrite IH by (left; lia). lia.
    - assert (v n * v n = 0) by lia. assert (v n = 0) as -> by nia. rewrite IH by (right; lia). lia. }
  assert (dot u v = 0); [|lia]. unfold dot in *. apply Z0.
  apply Z.mul_eq_0 in E. destruct E; subst; [left|right]; lia.
Qed.

Lemma L2_gauge : gauge L2.
Proof. unfold L2; split; intros.
  - destruct H0. split; [assumption|]. unfold dot in *.
    rewrite <- (upto_eq (fun i => u i * u i)); [assumption|]. intro; rewrite H; reflexivity.
  - split; [lia|]. unfold dot, vzero. induction k; simpl in *; lia.
  - destruct H. split; [assumption|]. unfold dot, vneg in *.
    rewrite (upto_eq _ (fun i => u i * u i)); [assumption|]. intro; ring.
  - destruct H, H0. split; [lia|]. pose proof (cauchy_schwarz u v c d H H0 H1 H2).
    replace (dot (vadd u v) (vadd u v)) with (dot u u + 2 * dot u v + dot v v); [nia|].
    unfold dot, vadd. rewrite <- upto_scale, <- !upto_plus. apply upto_eq. intro; ring.
  - destruct H. split; [lia|]. nia. Qed.
End Sums.

Section Sens.
Variable R : Type.
Variable eq_dec : forall x y : R, {x = y} + {x <> y}.

(* The symmetric distance of two lists of records, read as multisets: take the records of the first out of the second,
   count those that are not there and those that are left over. `dataset_distance.v` shows that it is the usual one. *)
Fixpoint drop (x : R) (ys : list R) : list R :=
  match ys with [] => [] | y :: r => if eq_dec x y then r else y :: drop x r end.
Fixpoint distance (xs ys : list R) : nat :=
  match xs with
  | [] => length ys
  | x :: r => if in_dec eq_dec x ys then distance r (drop x ys) else S (distance r ys)
  end.

Lemma drop_perm : forall x ys, In x ys -> Permutation ys (x :: drop x ys).
Proof. induction ys as [|y r IH]; simpl; intro H; [contradiction|].
  destruct (eq_dec x y) as [->|Hn]; [reflexivity|].
  destruct H as [->|H]; [congruence|]. rewrite (IH H) at 1. apply perm_swap. Qed.

(* Two datasets are a common part and two remainders, whose sizes add up to the distance. *)
Lemma distance_split : forall xs ys, exists a b z,
  Permutation xs (a ++ z) /\ Permutation ys (b ++ z) /\ (length a + length b = distance xs ys)%nat.
Proof. induction xs as [|x r IH]; intro ys; simpl.
  - exists [], ys, []. split; [reflexivity|split; [rewrite app_nil_r; reflexivity|reflexivity]].
  - destruct (in_dec eq_dec x ys) as [Hi|Hi].
    + destruct (IH (drop x ys)) as (a & b & z & Ha & Hb & E). exists a, b, (x :: z). split; [|split; [|assumption]].
      * rewrite Ha. apply Permutation_middle.
      * rewrite (drop_perm x ys Hi), Hb. apply Permutation_middle.
    + destruct (IH ys) as (a & b & z & Ha & Hb & E). exists (x :: a), b, z. split; [|split; [assumption|simpl; lia]].
      rewrite Ha. reflexivity. Qed.

(* The sum over values of the difference of multiplicities. *)
Fixpoint values_sum (vs : list R) (xs ys : list R) : nat :=
  match vs with [] => 0 | v :: r =>
    (count_occ eq_dec xs v - count_occ eq_dec ys v) + (count_occ eq_dec ys v - count_occ eq_dec xs v)
      + values_sum r xs ys end.

Variable B : vec -> Z -> Prop.
Hypothesis HB : gauge B.
Variable f : R -> vec.
Variable c : Z.
Hypothesis c_pos : 0 <= c.
Hypothesis bounded : forall r, B (f r) c.

Fixpoint total (rows : list R) : vec := match rows with [] => vzero | r :: rest => vadd (f r) (total rest) end.

Lemma total_app : forall xs ys i, total (xs ++ ys) i = total xs i + total ys i.
Proof. induction xs; simpl; intros; unfold vadd, vzero; [lia|]. rewrite IHxs. lia. Qed.
Lemma total_perm : forall xs ys, Permutation xs ys -> forall i, total xs i = total ys i.
Proof. induction 1; simpl; intros; unfold vadd; auto; try rewrite IHPermutation; try lia.
  rewrite IHPermutation1. apply IHPermutation2. Qed.
Lemma total_norm : forall xs, B (total xs) (c * Z.of_nat (length xs)).
Proof. induction xs as [|r xs IH].
  - simpl. replace (c * 0) with 0 by lia. apply (g_zero B HB).
  - replace (c * Z.of_nat (length (r :: xs))) with (c + c * Z.of_nat (length xs)) by (simpl length; lia).
    apply (g_add B HB); auto. Qed.

(* The general statement, for every gauge B. *)
Theorem sensitivity : forall xs ys n, (distance xs ys <= n)%nat -> B (vsub (total xs) (total ys)) (c * Z.of_nat n).
Proof.
  intros xs ys n Hn. destruct (distance_split xs ys) as (a & b & z & Hx & Hy & E).
  apply (g_up B HB) with (c * Z.of_nat (length a) + c * Z.of_nat (length b)); [|nia].
  apply (g_ext B HB) with (vadd (total a) (vneg (total b))).
  - intro i. unfold vsub, vadd, vneg. rewrite (total_perm _ _ Hx i), (total_perm _ _ Hy i), !total_app. lia.
  - apply (g_add B HB); [|apply (g_neg B HB)]; apply total_norm.
Qed.
End Sens.

(* The three norms of vector distances, and sums in parts: neither the order of rows nor their cut into blocks changes a
   sum. *)
Theorem l1_sensitivity (k : nat) R eq_dec (f : R -> vec) c : 0 <= c -> (forall r, L1 k (f r) c) ->
  forall xs ys n, (distance R eq_dec xs ys <= n)%nat -> L1 k (vsub (total R f xs) (total R f ys)) (c * Z.of_nat n).
Proof. intros. eapply sensitivity; eauto using L1_gauge. Qed.
Theorem l2_sensitivity (k : nat) R eq_dec (f : R -> vec) c : 0 <= c -> (forall r, L2 k (f r) c) ->
  forall xs ys n, (distance R eq_dec xs ys <= n)%nat -> L2 k (vsub (total R f xs) (total R f ys)) (c * Z.of_nat n).
Proof. intros. eapply sensitivity; eauto using L2_gauge. Qed.
Theorem linf_sensitivity (k : nat) R eq_dec (f : R -> vec) c : 0 <= c -> (forall r, Linf k (f r) c) ->
  forall xs ys n, (distance R eq_dec xs ys <= n)%nat -> Linf k (vsub (total R f xs) (total R f ys)) (c * Z.of_nat n).
Proof. intros. eapply sensitivity; eauto using Linf_gauge. Qed.
Theorem chunks (R : Type) (f : R -> vec) xs ys zs : Permutation xs (ys ++ zs) ->
  forall i, total R f xs i = total R f ys i + total R f zs i.
Proof. intros. rewrite (total_perm R f _ _ H i). apply total_app. Qed.
