(* Sums and roundings: composition.md (accounting), Lemma 1, and row_products.md, Lemma 1. *)
Require Import ZArith QArith List Lia Lqa.
Import ListNotations.
From Proofs Require Import sensitivity.

Section Totals.
Open Scope Q_scope.

(* composition.md, Lemma 1: adding with every sum rounded up, by any upward rounding, gives at least the exact sum. *)
Fixpoint qsum_list (l : list Q) : Q := match l with [] => 0 | x :: r => x + qsum_list r end.
Theorem totals : forall (up : Q -> Q), (forall x, x <= up x) -> forall l s, s + qsum_list l <= fold_left (fun a x => up (a + x)) l s.
Proof. intros up Hu. induction l as [|x l IH]; intro s; cbn [qsum_list fold_left]; [lra|]. specialize (IH (up (s + x))). specialize (Hu (s + x)). lra. Qed.

End Totals.

Open Scope Z_scope.

(* row_products.md, Lemma 1: with |x| <= r and |q| <= s the sum of products over any set of columns is at most r s in
   size. *)
Theorem partial_sums : forall k (x q : vec) (inS : nat -> bool) r s, 0 <= r -> 0 <= s -> dot k x x <= r * r -> dot k q q <= s * s ->
  Z.abs (upto (fun j => if inS j then x j * q j else 0) k) <= r * s.
Proof. intros k x q inS r s Hr Hs Hx Hq.
  assert (A : Z.abs (upto (fun j => if inS j then x j * q j else 0) k) <= upto (fun j => Z.abs (x j) * Z.abs (q j)) k).
  { clear. induction k as [|k IH]; simpl; [lia|]. rewrite <- Z.abs_mul. destruct (inS k); lia. }
  eapply Z.le_trans; [exact A|]. apply (cauchy_schwarz k (fun j => Z.abs (x j)) (fun j => Z.abs (q j))); try assumption; unfold dot in *.
  - rewrite (upto_eq _ (fun j => x j * x j)); [assumption|]. intro. apply Z.abs_square.
  - rewrite (upto_eq _ (fun j => q j * q j)); [assumption|]. intro. apply Z.abs_square. Qed.
