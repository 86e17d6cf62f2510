(* Sums and roundings: composition.md (accounting), Lemma 1; row_products.md, Lemma 1; jl_projection.md, Lemma 1. *)
Require Import ZArith QArith List Permutation Lia Lqa.
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

(* jl_projection.md, Lemma 1: sums in any order, of numbers whose sizes add up to at most what additions keep exactly. A tree
   is an order of additions; `add` rounds, but not where the sum is within the limit. *)
Inductive order := One (z : Z) | Both (a b : order).
Fixpoint leaves (t : order) : list Z := match t with One z => [z] | Both a b => leaves a ++ leaves b end.
Fixpoint added (add : Z -> Z -> Z) (t : order) : Z := match t with One z => z | Both a b => add (added add a) (added add b) end.
Definition sum_of (l : list Z) := fold_right Z.add 0 l.
Definition size_of (l : list Z) := fold_right (fun z s => Z.abs z + s) 0 l.
Lemma sum_app : forall a b, sum_of (a ++ b) = sum_of a + sum_of b.
Proof. unfold sum_of. induction a as [|x a IH]; intro b; cbn [app fold_right]; [lia|]. rewrite IH. lia. Qed.
Lemma size_app : forall a b, size_of (a ++ b) = size_of a + size_of b.
Proof. unfold size_of. induction a as [|x a IH]; intro b; cbn [app fold_right]; [lia|]. rewrite IH. lia. Qed.
Lemma sum_size : forall l, Z.abs (sum_of l) <= size_of l.
Proof. unfold sum_of, size_of. induction l as [|x l IH]; cbn [fold_right]; lia. Qed.
Lemma size_pos : forall l, 0 <= size_of l.
Proof. intro l. pose proof (sum_size l). lia. Qed.
Theorem exact_order : forall limit add, (forall a b, Z.abs (a + b) <= limit -> add a b = a + b) -> forall t, size_of (leaves t) <= limit -> added add t = sum_of (leaves t).
Proof. intros limit add H. induction t as [z|a IHa b IHb]; cbn [leaves added]; intro L; [unfold sum_of; simpl; lia|].
  rewrite size_app in L. pose proof (size_pos (leaves a)). pose proof (size_pos (leaves b)). rewrite IHa, IHb by lia. rewrite sum_app. apply H. rewrite <- sum_app. pose proof (sum_size (leaves a ++ leaves b)) as S. rewrite size_app in S. lia. Qed.
Theorem any_order : forall limit add, (forall a b, Z.abs (a + b) <= limit -> add a b = a + b) -> forall t u, Permutation (leaves t) (leaves u) -> size_of (leaves t) <= limit ->
  added add t = added add u.
Proof. intros limit add H t u P L. assert (E : forall a b, Permutation a b -> sum_of a = sum_of b /\ size_of a = size_of b) by (unfold sum_of, size_of; induction 1; cbn [fold_right] in *; lia).
  destruct (E _ _ P) as [E1 E2]. rewrite (exact_order limit add H t L), (exact_order limit add H u) by lia. exact E1. Qed.
(* Entries of at most M in size, with signs or zeros: d of them keep any order below d M. *)
Theorem signed_entries : forall M l, 0 <= M -> (forall e, In e l -> Z.abs (fst e) <= 1 /\ Z.abs (snd e) <= M) -> size_of (map (fun e => fst e * snd e) l) <= Z.of_nat (length l) * M.
Proof. intros M l H0. induction l as [|e l IH]; intro H; [simpl; lia|]. cbn [map length]. unfold size_of in *. cbn [fold_right]. specialize (IH ltac:(intros; apply H; right; assumption)).
  destruct (H e (or_introl eq_refl)). rewrite Z.abs_mul, Nat2Z.inj_succ. nia. Qed.
