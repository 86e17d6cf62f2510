(* privacy_filter.md, Lemma 3, at every real order a > 1. This file alone loads Coq's theory of real numbers and rests on
   its axioms. *)
Require Import Reals Lra List Lia.
Import ListNotations.
From Proofs Require Import privacy_filter.
Open Scope R_scope.

Section RealOrder.
Variable O : Type. Variable outs : list O -> list O. Variables P P' : list O -> O -> R.
Hypothesis P0 : forall p o, 0 < P p o. Hypothesis P'0 : forall p o, 0 < P' p o.
Variable a unit_ : R. Hypothesis a1 : 1 < a. Hypothesis u0 : 0 <= unit_.
Definition lik (x y : R) := Rpower x a * Rpower y (1 - a).
Definition Gr (n : nat) := exp (a * (a - 1) * unit_ * INR n).
Variable C : list O -> nat. Variable B : nat. Hypothesis within_budget : forall p, (C p <= rest O C B p)%nat.

(* One release keeps its price: a hypothesis (Lemma R6 of rounded_gaussian.md; Proposition 5 of Canonne, Kamath and
   Steinke 2020). *)
Hypothesis one_release : forall p, ksum R 0 Rplus O (fun o => lik (P p o) (P' p o)) (outs p) <= Gr (C p).
Fixpoint probR (s : list O -> O -> R) (p t : list O) : R := match t with [] => 1 | o :: r => s p o * probR s (o :: p) r end.
Fixpoint trans (n : nat) (p : list O) : list (list O) := match n with 0%nat => [[]] | S m => flat_map (fun o => map (cons o) (trans m (o :: p))) (outs p) end.
Fixpoint rsum {A} (f : A -> R) (l : list A) : R := match l with [] => 0 | x :: r => f x + rsum f r end.
Lemma probR_pos : forall s, (forall p o, 0 < s p o) -> forall t p, 0 < probR s p t.
Proof. intros s H. induction t as [|o t IH]; intro p; simpl; [lra|]. apply Rmult_lt_0_compat; auto. Qed.
Lemma lik_mul : forall x y u v, 0 < x -> 0 < y -> 0 < u -> 0 < v -> lik (x * u) (y * v) = lik x y * lik u v.
Proof. intros. unfold lik. rewrite <- !Rpower_mult_distr by assumption. ring. Qed.
Lemma rsum_app : forall A (f : A -> R) l m, rsum f (l ++ m) = rsum f l + rsum f m.
Proof. induction l; intros; simpl; [ring|]. rewrite IHl. ring. Qed.
Lemma moment_isR : forall n p, moment R 0 1 Rplus Rmult O outs (fun p o => lik (P p o) (P' p o)) n p
   = rsum (fun t => lik (probR P p t) (probR P' p t)) (trans n p).
Proof. induction n as [|n IH]; intro p.
  - simpl. unfold lik, Rpower. rewrite ln_1, !Rmult_0_r, exp_0. ring.
  - cbn [moment trans]. induction (outs p) as [|o l IHl]; cbn [ksum flat_map]; [reflexivity|].
    rewrite rsum_app, <- IHl, IH. f_equal. generalize (trans n (o :: p)). induction l0 as [|t l0 IH0]; cbn [map rsum]; [ring|].
    rewrite <- IH0. cbn [probR]. rewrite lik_mul by auto using probR_pos. ring. Qed.

(* One person: with B units of size unit_ the Renyi divergence of order a of whole sequences is at most a B unit_, for
   finite trees. *)
Theorem renyi_real_order : forall n, rsum (fun t => lik (probR P [] t) (probR P' [] t)) (trans n []) <= exp (a * (a - 1) * unit_ * INR B).
Proof. intro n. rewrite <- moment_isR. change (exp (a * (a - 1) * unit_ * INR B)) with (Gr B).
  assert (K : 0 <= a * (a - 1) * unit_) by (apply Rmult_le_pos; [apply Rmult_le_pos; lra|assumption]).
  apply (renyi_filter R 0 1 Rplus Rmult Rle Rle_refl Rle_trans) with (C := C) (G := Gr); try assumption.
  - intros. lra.
  - intros x y c H H1. apply Rmult_le_compat_l; assumption.
  - intros x y c H H1. apply Rmult_le_compat_r; assumption.
  - intros. lra.
  - intros. lra.
  - intros p o. unfold lik, Rpower. apply Rmult_le_pos; left; apply exp_pos.
  - intro k. left. apply exp_pos.
  - intros k j. unfold Gr. rewrite plus_INR, Rmult_plus_distr_l, exp_plus. lra.
  - intro k. unfold Gr. assert (0 <= a * (a - 1) * unit_ * INR k) as H by (apply Rmult_le_pos; [assumption|apply pos_INR]).
    set (z := a * (a - 1) * unit_ * INR k) in *. pose proof (exp_ineq1_le z). lra. Qed.
End RealOrder.
