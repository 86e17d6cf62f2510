(* top_stable.md, Lemma 1: the sparse vector technique stopped at its first answer; and gated_peel.md, Lemma 3. *)
Require Import ZArith QArith List Lia Lqa.
Import ListNotations.
From Proofs Require Import differential_privacy top_k.
Open Scope Q_scope.

Section SparseVector.
Variable d : Z. Hypothesis d0 : (0 <= d)%Z.
(* The chance that the threshold's noise is y; that a gap's noise is below t; that it is at least t. *)
Variables pY F T : Z -> Q.
(* The factors for moving the threshold's noise by d and a gap's noise by at most 2 d. *)
Variables G1 G2 : Q.
Hypothesis pos1 : 0 <= G1. Hypothesis pos2 : 0 <= G2.
Hypothesis pY0 : forall y, 0 <= pY y. Hypothesis F0 : forall t, 0 <= F t. Hypothesis T0 : forall t, 0 <= T t.
Hypothesis pY_moves : forall y, pY y <= G1 * pY (y + d)%Z.
Hypothesis F_grows : forall s t, (s <= t)%Z -> F s <= F t.
Hypothesis T_moves : forall t k, (0 <= k <= 2 * d)%Z -> T t <= G2 * T (t + k)%Z.
Variable C : Z.
Fixpoint all_below (gap : nat -> Z) (before : list nat) (y : Z) : Q := match before with [] => 1 | i :: r => F (C + y - gap i) * all_below gap r y end.

(* The chance that the threshold's noise is y, no place before j passes, and j does. *)
Definition term (gap : nat -> Z) (before : list nat) (j : nat) (y : Z) : Q := pY y * (all_below gap before y * T (C + y - gap j)).
Lemma below_pos : forall gap b y, 0 <= all_below gap b y.
Proof. induction b as [|i b IH]; intro y; cbn [all_below]; [lra|]. apply Qmult_le_0_compat; auto. Qed.
Lemma below_moves : forall gap gap' b y, (forall i, (Z.abs (gap i - gap' i) <= d)%Z) -> all_below gap b y <= all_below gap' b (y + d).
Proof. intros gap gap' b y H. induction b as [|i b IH]; cbn [all_below]; [lra|]. apply mul_le; [apply F0|apply below_pos| |assumption].
  apply F_grows. specialize (H i). lia. Qed.

(* Move y by d: no earlier gap passes that did not, and the gap of j needs at most 2 d. *)
Theorem sparse_vector_term : forall gap gap' b j y, (forall i, (Z.abs (gap i - gap' i) <= d)%Z) -> term gap b j y <= (G1 * G2) * term gap' b j (y + d).
Proof. intros gap gap' b j y H. unfold term.
  setoid_replace (G1 * G2 * (pY (y + d) * (all_below gap' b (y + d) * T (C + (y + d) - gap' j))))
    with ((G1 * pY (y + d)) * (all_below gap' b (y + d) * (G2 * T (C + (y + d) - gap' j)))) by ring.
  apply mul_le; [apply pY0|apply Qmult_le_0_compat; [apply below_pos|apply T0]|apply pY_moves|].
  apply mul_le; [apply below_pos|apply T0|apply below_moves; assumption|].
  replace (C + (y + d) - gap' j)%Z with (C + y - gap j + (d + (gap j - gap' j)))%Z by lia. apply T_moves. specialize (H j). lia. Qed.

(* Summed over any finite list of y. *)
Theorem sparse_vector : forall gap gap' b j ys, (forall i, (Z.abs (gap i - gap' i) <= d)%Z) ->
  qsum (term gap b j) ys <= (G1 * G2) * qsum (term gap' b j) (map (fun y => (y + d)%Z) ys).
Proof. intros gap gap' b j ys H. induction ys as [|y ys IH]; cbn [qsum map]; [lra|]. pose proof (sparse_vector_term gap gap' b j y H). lra. Qed.
End SparseVector.

(* gated_peel.md, Lemma 3: c' (1 - p) = c (1 - p'), D bounds A(E) - c' B(E), plus bounds p - c p' and is at least 0. *)
Theorem gated_same : forall c c' p p' A B D i plus, 0 <= i -> i <= 1 -> p <= 1 -> c' * (1 - p) == c * (1 - p') -> A - c' * B <= D ->
  0 <= plus -> p - c * p' <= plus -> (i * p + (1 - p) * A) - c * (i * p' + (1 - p') * B) <= plus + (1 - p) * D.
Proof. intros c c' p p' A B D i plus H1 H2 H3 E HD H4 H5.
  setoid_replace (i * p + (1 - p) * A - c * (i * p' + (1 - p') * B)) with (i * (p - c * p') + ((1 - p) * A - (c * (1 - p')) * B)) by ring.
  rewrite <- E. assert (i * (p - c * p') <= plus) by nra. assert ((1 - p) * (A - c' * B) <= (1 - p) * D) by nra. lra. Qed.
