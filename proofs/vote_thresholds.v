(* Items on one side only: limited_domain.md, Lemma 1 (how many items leave), and noise_threshold.md, Lemmas 1 and 2. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance sparse_sums vote_distance.
Open Scope Z_scope.

(* limited_domain.md, Lemma 1. A and B are the candidates among the first K ranks of two datasets; `has x v` says that
   item x is a candidate at v votes; `moves` holds all items whose counts differ. *)
Section Limited.
Variable K : nat. Variables h h' : nat -> Z. Variable has : nat -> Z -> bool.
Variables A B : list nat.
Hypothesis nA : NoDup A. Hypothesis nB : NoDup B. Hypothesis lA : (length A <= K)%nat.
(* The order of ranks: more votes, or as many and earlier in the public order. *)
Definition ahead (g : nat -> Z) (x y : nat) := g x > g y \/ (g x = g y /\ (x < y)%nat).
Hypothesis A_has : forall x, In x A -> has x (h x) = true.
Hypothesis B_has : forall x, In x B -> has x (h' x) = true.

Hypothesis A_first : forall x y, In x A -> has y (h y) = true -> ahead h y x -> In y A.
Hypothesis B_full : forall x, ~ In x B -> has x (h' x) = true -> length B = K /\ forall y, In y B -> ahead h' y x.
Definition only_A := filter (fun x => if in_dec Nat.eq_dec x B then false else true) A.
Definition only_B := filter (fun x => if in_dec Nat.eq_dec x A then false else true) B.
Variable moves : list nat. Hypothesis moved_in : forall x, h x <> h' x -> In x moves.

Lemma common : (length only_A + length B <= length only_B + length A)%nat.
Proof. unfold only_A, only_B.
  assert (S : forall (p : nat -> bool) l, length l = (length (filter p l) + length (filter (fun x => negb (p x)) l))%nat).
  { intros p l. induction l as [|x l IH]; simpl; [reflexivity|]. destruct (p x); simpl; lia. }
  rewrite (S (fun x => if in_dec Nat.eq_dec x B then false else true) A), (S (fun x => if in_dec Nat.eq_dec x A then false else true) B).
  assert (length (filter (fun x => negb (if in_dec Nat.eq_dec x A then false else true)) B) <= length (filter (fun x => negb (if in_dec Nat.eq_dec x B then false else true)) A))%nat; [|lia].
  apply NoDup_incl_length; [apply NoDup_filter; assumption|]. intros x Hx. apply filter_In in Hx. destruct Hx as [Hb Hq].
  destruct (in_dec Nat.eq_dec x A); [|discriminate]. apply filter_In. split; [assumption|]. destruct (in_dec Nat.eq_dec x B); [reflexivity|contradiction]. Qed.

(* At most K items of A are not in B, and at most as many as counts that moved. *)
Theorem leaving_items : (length only_A <= K)%nat /\ (length only_A <= length moves)%nat.
Proof. split.
  { eapply Nat.le_trans; [|exact lA]. unfold only_A. clear. induction A as [|x l IH]; simpl; [lia|]. destruct (in_dec Nat.eq_dec x B); simpl; lia. }
  destruct (Forall_dec (fun x => h x <> h' x) ltac:(intro x; destruct (Z.eq_dec (h x) (h' x)); [right; tauto|left; assumption]) only_A) as [F|F].
  - apply NoDup_incl_length; [apply NoDup_filter; assumption|]. intros x Hx. apply moved_in. rewrite Forall_forall in F. auto.
  - assert (E : exists x, In x only_A /\ h x = h' x).
    { clear - F. induction only_A as [|x l IH]; [exfalso; apply F; constructor|]. destruct (Z.eq_dec (h x) (h' x)) as [E|E]; [exists x; split; [left; reflexivity|assumption]|].
      destruct IH as (y & Hy & Ey); [intro G; apply F; constructor; assumption|]. exists y. split; [right; assumption|assumption]. }
    destruct E as (x & Hx & Ex). unfold only_A in Hx. apply filter_In in Hx. destruct Hx as [HxA HxB]. destruct (in_dec Nat.eq_dec x B) as [|Hn]; [discriminate|].
    pose proof (A_has x HxA) as Hh. rewrite Ex in Hh. destruct (B_full x Hn Hh) as [LB AB].
    assert (I : incl only_B moves).
    { intros y Hy. unfold only_B in Hy. apply filter_In in Hy. destruct Hy as [HyB HyA]. destruct (in_dec Nat.eq_dec y A) as [|Hny]; [discriminate|].
      apply moved_in. intro Ey. apply Hny. apply (A_first x y HxA).
      - rewrite Ey. apply B_has. assumption.
      - specialize (AB y HyB). unfold ahead in *. rewrite Ex, Ey. assumption. }
    apply NoDup_incl_length in I; [|apply NoDup_filter; assumption]. pose proof common. lia. Qed.
End Limited.

(* noise_threshold.md, Lemma 1: an item of one side has between 1 and d votes, and all items together use at most c d
   votes. *)
Theorem one_side_votes : forall m c d h h', walk m c d h h' -> forall x, (x < m)%nat -> 0 < h x -> h' x <= 0 -> 1 <= h x <= Z.of_nat d.
Proof. intros m c d h h' W x Hx H H'. pose proof (walk_linf m c d h h' W x Hx). lia. Qed.
Theorem votes_used : forall m c d h h', walk m c d h h' ->
  upto (fun x => if (0 <? h x) then (if 0 <? h' x then Z.abs (h x - h' x) else h x) else (if 0 <? h' x then h' x else 0)) m <= Z.of_nat c * Z.of_nat d.
Proof. intros m c d h h' W. eapply Z.le_trans; [|apply (walk_l1 m c d h h' W)]. apply upto_mono. intros i Hi.
  destruct (Z.ltb_spec 0 (h i)), (Z.ltb_spec 0 (h' i)); lia. Qed.

Open Scope Z_scope.

(* noise_threshold.md, Lemma 2: a convex sequence lies below its chord from 1 to d. *)
Section Chord.
Variable g : nat -> Z. Hypothesis convex : forall n, (1 <= n)%nat -> g (S n) - g n <= g (S (S n)) - g (S n).
Lemma slopes : forall n m, (1 <= n <= m)%nat -> g (S n) - g n <= g (S m) - g m.
Proof. intros n m [H1 H2]. induction H2 as [|m H2 IH]; [lia|]. pose proof (convex m ltac:(lia)). lia. Qed.
Lemma left_of : forall v, (1 <= v)%nat -> g (S v) - g 1%nat <= Z.of_nat v * (g (S v) - g v).
Proof. induction v as [|v IH]; intro H; [lia|]. destruct (Nat.eq_dec v 0) as [->|]; [lia|]. specialize (IH ltac:(lia)). pose proof (convex v ltac:(lia)).
  rewrite Nat2Z.inj_succ. nia. Qed.
Lemma right_of : forall v k, (1 <= v)%nat -> Z.of_nat k * (g (S v) - g v) <= g (S v + k)%nat - g (S v).
Proof. intros v k H. induction k as [|k IH]; [rewrite Nat.add_0_r; lia|]. pose proof (slopes v (S v + k) ltac:(lia)) as S. rewrite Nat.add_succ_r, Nat2Z.inj_succ. nia. Qed.
Theorem chord : forall v d, (1 <= v <= d)%nat -> (Z.of_nat d - 1) * g v <= (Z.of_nat d - Z.of_nat v) * g 1%nat + (Z.of_nat v - 1) * g d.
Proof. intros v d H. destruct (Nat.eq_dec v 1) as [->|N]; [lia|]. destruct v as [|w]; [lia|].
  pose proof (left_of w ltac:(lia)) as A. pose proof (right_of w (d - S w) ltac:(lia)) as B. replace (S w + (d - S w))%nat with d in B by lia.
  set (s := g (S w) - g w) in *. rewrite Nat2Z.inj_sub in B by lia. rewrite Nat2Z.inj_succ in *.
  assert ((Z.of_nat d - Z.succ (Z.of_nat w)) * (g (S w) - g 1%nat) <= (Z.of_nat d - Z.succ (Z.of_nat w)) * (Z.of_nat w * s)) by (apply Z.mul_le_mono_nonneg_l; lia).
  assert (Z.of_nat w * ((Z.of_nat d - Z.succ (Z.of_nat w)) * s) <= Z.of_nat w * (g d - g (S w))) by (apply Z.mul_le_mono_nonneg_l; lia). nia. Qed.
Theorem below_rate : forall r v d, (1 <= v <= d)%nat -> g 1%nat <= r -> g d <= r * Z.of_nat d -> g v <= r * Z.of_nat v.
Proof. intros r v d H H1 Hd. destruct (Nat.eq_dec d 1) as [->|N]; [assert (v = 1)%nat as -> by lia; lia|]. pose proof (chord v d H) as C.
  assert ((Z.of_nat d - Z.of_nat v) * g 1%nat <= (Z.of_nat d - Z.of_nat v) * r) by (apply Z.mul_le_mono_nonneg_l; lia).
  assert ((Z.of_nat v - 1) * g d <= (Z.of_nat v - 1) * (r * Z.of_nat d)) by (apply Z.mul_le_mono_nonneg_l; lia).
  apply (Z.mul_le_mono_pos_l _ _ (Z.of_nat d - 1)); [lia|]. nia. Qed.

(* So the sum of g over items of 1 to d votes is at most r times their votes, r at least g(1) and g(d) / d. *)
Theorem items_rate : forall r d (vs : list nat), (forall v, In v vs -> (1 <= v <= d)%nat) -> g 1%nat <= r -> g d <= r * Z.of_nat d ->
  fold_right (fun v s => g v + s) 0 vs <= r * Z.of_nat (list_sum vs).
Proof. intros r d vs H H1 Hd. induction vs as [|v vs IH]; [simpl; lia|]. cbn [fold_right list_sum]. specialize (IH ltac:(intros; apply H; right; assumption)).
  pose proof (below_rate r v d (H v (or_introl eq_refl)) H1 Hd). change (list_sum (v :: vs)) with (v + list_sum vs)%nat. unfold list_sum in *. cbn [fold_right]. lia. Qed.
End Chord.
