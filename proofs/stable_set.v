(* The release of stable_set.md as a whole: propose, test and release over integer counts is (eps, delta)-private for any
   noise whose chance to pass the test obeys the stated conditions. c stands for e^eps. *)
Require Import ZArith QArith List Lia Lqa.
Import ListNotations.
From Proofs Require Import top_k.

Section StableSet.
Variable m k : nat. Hypothesis Hk : (1 <= k < m)%nat.
(* a users are added and b removed. *)
Variables a b : Z. Hypothesis a0 : (0 <= a)%Z. Hypothesis b0 : (0 <= b)%Z.
Open Scope Q_scope.
(* The chance to pass as a function of the gap. It is a hypothesis that the noise is private, and that a gap of at most a
   + b passes with a chance of at most delta. *)
Variable pass : Z -> Q.
Variables c delta : Q. Hypothesis c1 : 1 <= c. Hypothesis d1 : delta <= 1.
Hypothesis pass01 : forall g, 0 <= pass g /\ pass g <= 1.
Hypothesis pass_mono : forall g g', (g <= g')%Z -> pass g <= pass g'.
Hypothesis pass_close : forall g g', (Z.abs (g - g') <= a + b)%Z -> pass g <= c * pass g' /\ 1 - pass g <= c * (1 - pass g').
Hypothesis pass_far : pass (a + b) <= delta.
(* With a public catalogue every item may be released; without one every item of the set needs a vote. *)
Variable listed : bool.
Definition votes_ok (h : nat -> Z) (S : list nat) := listed || forallb (fun x => (1 <=? h x)%Z) S.
Definition chance (h : nat -> Z) (S : list nat) (gap : Z) := if votes_ok h S then pass gap else 0.

(* The probability of an event: E says of each set whether it is in the event, N the same of no answer. *)
Definition event (E : list nat -> bool) (N : bool) (S : list nat) (p : Q) := ind (E S) * p + ind N * (1 - p).

Lemma weak : forall h S p q, (forall i, (0 <= h i)%Z) -> top m h k S -> kth m h k p -> kth m h (Datatypes.S k) q -> votes_ok h S = false -> (p <= 0 /\ p - q = 0)%Z.
Proof. intros h S p q H0 HS Hp Hq Hv. unfold votes_ok in Hv. apply Bool.orb_false_iff in Hv. destruct Hv as [_ Hv].
  assert (X : exists x, In x S /\ (h x < 1)%Z).
  { clear - Hv. induction S as [|x S IH]; simpl in Hv; [discriminate|]. destruct (Z.leb_spec 1 (h x)) as [G|G]; simpl in Hv.
    - destruct (IH Hv) as (y & Hy & L). exists y. split; [right; assumption|assumption].
    - exists x. split; [left; reflexivity|assumption]. }
  destruct X as (x & Hx & L). pose proof (top_in m h k S x p HS Hp Hx).
  assert (p <= 0)%Z by lia. pose proof (gap_nonneg m h k p q Hp Hq).
  assert (0 <= q)%Z; [|lia]. destruct (Z_lt_le_dec q 0) as [G|]; [exfalso|assumption]. destruct Hq as [_ B].
  assert (at_least m h (q + 1) = m); [|lia]. unfold at_least. assert (F : forall ll, filter (fun i => (q + 1 <=? h i)%Z) ll = ll).
  { intro ll. induction ll as [|i ll IH]; simpl; [reflexivity|]. rewrite (proj2 (Z.leb_le (q + 1) (h i))) by (specialize (H0 i); lia). rewrite IH. reflexivity. }
  rewrite F. apply seq_length. Qed.

Lemma same_dec : forall A B : list nat, (forall x, In x A <-> In x B) \/ ~ (forall x, In x A <-> In x B).
Proof. intros A B. destruct (Forall_dec (fun z => In z B) ltac:(intro z; apply (in_dec Nat.eq_dec)) A) as [F|F];
    destruct (Forall_dec (fun z => In z A) ltac:(intro z; apply (in_dec Nat.eq_dec)) B) as [G|G].
  - left. rewrite Forall_forall in F, G. intro z. split; auto.
  - right. intro E. apply G. apply Forall_forall. intros z Hz. apply E. assumption.
  - right. intro E. apply F. apply Forall_forall. intros z Hz. apply E. assumption.
  - right. intro E. apply F. apply Forall_forall. intros z Hz. apply E. assumption. Qed.

(* Equal sets are equal outputs, as the set is released in the public order. *)
Theorem stable_set : forall h h' S S' p q p' q' E N,
  near m a b h h' -> (listed = false -> (forall i, (0 <= h i)%Z) /\ (forall i, (0 <= h' i)%Z)) ->
  top m h k S -> top m h' k S' -> kth m h k p -> kth m h (Datatypes.S k) q -> kth m h' k p' -> kth m h' (Datatypes.S k) q' ->
  (forall A B, (forall x, In x A <-> In x B) -> E A = E B) ->
  event E N S (chance h S (p - q)) <= c * event E N S' (chance h' S' (p' - q')) + delta.
Proof. intros h h' S S' p q p' q' E N Hn H0 HS HS' Hp Hq Hp' Hq' HE.
  pose proof same_dec as Dec.
  pose proof (gap_nonneg m h k p q Hp Hq) as G. pose proof (gap_nonneg m h' k p' q' Hp' Hq') as G'.
  assert (D0 : 0 <= delta) by (pose proof (pass01 (a + b)); lra).
  assert (small : forall g, (g <= a + b)%Z -> pass g <= delta) by (intros g Hg; pose proof (pass_mono g (a + b) Hg); lra).
  assert (different : forall x y, 0 <= x -> x <= delta -> 0 <= y -> y <= delta -> event E N S x <= c * event E N S' y + delta).
  { intros x y X0 X1 Y0 Y1. unfold event. apply (different_case c x y delta (E S) (E S') N c1 X0 X1 Y0 Y1 d1). }
  assert (nonneg : forall h0 S0, votes_ok h0 S0 = false -> listed = false) by (intros h0 S0 V; unfold votes_ok in V; apply Bool.orb_false_iff in V; tauto).
  unfold chance. destruct (votes_ok h S) eqn:V, (votes_ok h' S') eqn:V'.
  - destruct (Dec S S') as [Eq|Ne].
    + unfold event. rewrite (HE S S' Eq).
      pose proof (gap_moves m a b h h' k p q p' q' Hn Hp Hq Hp' Hq') as M.
      assert ((Z.abs ((p - q) - (p' - q')) <= a + b)%Z) as M' by lia. destruct (pass_close _ _ M'). unfold ind. destruct (E S'), N; lra.
    + pose proof (different_sets m a b h h' k S S' p q p' q' Hn HS HS' Hp Hq Hp' Hq' Ne).
      apply different; try apply pass01; apply small; lia.
  - destruct (H0 (nonneg _ _ V')) as [A A']. destruct (weak h' S' p' q' A' HS' Hp' Hq' V') as [W1 W2].
    pose proof (kth_moves m a b h h' k p p' Hn Hp Hp').
    assert (0 <= q)%Z.
    { destruct (Z_lt_le_dec q 0) as [L|]; [exfalso|assumption]. destruct Hq as [_ B]. assert (top_k.at_least m h (q + 1) = m); [|lia].
      unfold top_k.at_least. assert (F : forall ll, filter (fun i => (q + 1 <=? h i)%Z) ll = ll).
      { intro ll. induction ll as [|i ll IH]; simpl; [reflexivity|]. rewrite (proj2 (Z.leb_le (q + 1) (h i))) by (specialize (A i); lia). rewrite IH. reflexivity. }
      rewrite F. apply seq_length. }
    apply different; [apply pass01|apply small; lia|lra|assumption].
  - destruct (H0 (nonneg _ _ V)) as [A A']. destruct (weak h S p q A HS Hp Hq V) as [W1 W2].
    pose proof (kth_moves m a b h h' k p p' Hn Hp Hp').
    assert (0 <= q')%Z.
    { destruct (Z_lt_le_dec q' 0) as [L|]; [exfalso|assumption]. destruct Hq' as [_ B]. assert (top_k.at_least m h' (q' + 1) = m); [|lia].
      unfold top_k.at_least. assert (F : forall ll, filter (fun i => (q' + 1 <=? h' i)%Z) ll = ll).
      { intro ll. induction ll as [|i ll IH]; simpl; [reflexivity|]. rewrite (proj2 (Z.leb_le (q' + 1) (h' i))) by (specialize (A' i); lia). rewrite IH. reflexivity. }
      rewrite F. apply seq_length. }
    apply different; [lra|assumption|apply pass01|apply small; lia].
  - apply different; lra. Qed.
End StableSet.
