(* second_moments.md, Lemma 2, and linear_model.md, Lemma 4. One record z adds the products z_i z_j for i <= j. *)
Require Import ZArith List Lia.
Import ListNotations.
From Proofs Require Import sensitivity sparse_sums.
Open Scope Z_scope.

(* The sum over i <= j < n. *)
Fixpoint tri (g : nat -> nat -> Z) (n : nat) : Z :=
  match n with O => 0 | S j => tri g j + upto (fun i => g i j) (S j) end.
Lemma tri_square : forall (a : nat -> Z) n, 2 * tri (fun i j => a i * a j) n = upto a n * upto a n + upto (fun i => a i * a i) n.
Proof. induction n as [|n IH]; [reflexivity|]. simpl tri.
  rewrite Z.mul_add_distr_l, IH. simpl upto.
  rewrite (upto_eq (fun i => a i * a n) (fun i => a n * a i)) by (intro; ring). rewrite upto_scale. ring. Qed.
Lemma tri_eq : forall g h n, (forall i j, g i j = h i j) -> tri g n = tri h n.
Proof. induction n; simpl; intro H; [reflexivity|]. rewrite IHn by assumption. rewrite (H n n). erewrite upto_eq; [reflexivity|]. intro. apply H. Qed.

(* With sum z_i^2 <= N and z_i^2 <= m: twice the squared L2 norm of the products is at most N^2 + m N. *)
Theorem second_moments_l2 : forall (z : nat -> Z) n N m, 0 <= m -> upto (fun i => z i * z i) n <= N -> (forall i, (i < n)%nat -> z i * z i <= m) ->
  2 * tri (fun i j => (z i * z j) * (z i * z j)) n <= N * N + m * N.
Proof. intros z n N m H0 HN Hm.
  rewrite (tri_eq _ (fun i j => (z i * z i) * (z j * z j))) by (intros; ring).
  rewrite (tri_square (fun i => z i * z i)).
  assert (0 <= upto (fun i => z i * z i) n) by (apply upto_pos; intro; apply Z.square_nonneg).
  assert (upto (fun i => z i * z i * (z i * z i)) n <= m * upto (fun i => z i * z i) n).
  { rewrite <- upto_scale. apply upto_le_lt. intros i Hi. specialize (Hm i Hi). pose proof (Z.square_nonneg (z i)). nia. }
  nia. Qed.

(* With sum |z_i| <= V: twice the L1 norm of the products is at most V^2 + N. *)
Theorem second_moments_l1 : forall (z : nat -> Z) n N V, upto (fun i => z i * z i) n <= N -> upto (fun i => Z.abs (z i)) n <= V ->
  2 * tri (fun i j => Z.abs (z i * z j)) n <= V * V + N.
Proof. intros z n N V HN HV.
  rewrite (tri_eq _ (fun i j => Z.abs (z i) * Z.abs (z j))) by (intros; apply Z.abs_mul).
  rewrite (tri_square (fun i => Z.abs (z i))).
  rewrite (upto_eq (fun i => Z.abs (z i) * Z.abs (z i)) (fun i => z i * z i)) by (intro; rewrite <- Z.abs_mul; apply Z.abs_eq; apply Z.square_nonneg).
  assert (0 <= upto (fun i => Z.abs (z i)) n) by (apply upto_pos; intro; lia). nia. Qed.

(* Cauchy and Schwarz against ones: the square of sum |z_i| is at most n sum z_i^2. *)
Theorem l1_l2 : forall (z : nat -> Z) n, upto (fun i => Z.abs (z i)) n * upto (fun i => Z.abs (z i)) n <= Z.of_nat n * upto (fun i => z i * z i) n.
Proof. intros z n. induction n as [|n IH]; [simpl; lia|]. cbn [upto].
  set (a := upto (fun i => Z.abs (z i)) n) in *. set (q := upto (fun i => z i * z i) n) in *.
  assert (0 <= q) by (apply upto_pos; intro; apply Z.square_nonneg). assert (0 <= a) by (apply upto_pos; intro; lia).
  assert (2 * a * Z.abs (z n) <= q + Z.of_nat n * (z n * z n)) as H1.
  { unfold a, q. generalize (z n). intro t. clear. induction n as [|j IH]; [simpl; lia|].
    cbn [upto]. rewrite Nat2Z.inj_succ. assert (2 * Z.abs (z j) * Z.abs t <= z j * z j + t * t)
      by (rewrite <- (Z.abs_square (z j)), <- (Z.abs_square t); pose proof (Z.square_nonneg (Z.abs (z j) - Z.abs t)); nia). lia. }
  rewrite Nat2Z.inj_succ. nia. Qed.

(* Every product is at most m in size. *)
Theorem second_moments_linf : forall a b m, a * a <= m -> b * b <= m -> Z.abs (a * b) <= m.
Proof. intros a b m Ha Hb. rewrite Z.abs_mul. rewrite <- (Z.abs_square a) in Ha. rewrite <- (Z.abs_square b) in Hb.
  pose proof (Z.square_nonneg (Z.abs a - Z.abs b)). nia. Qed.
