(* Stability of row maps: composition of maps, maps of one row to at most m rows, and public partitions. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance.
Open Scope nat_scope.

(* A map is c-stable if distances grow by a factor of at most c; stabilities of maps one after the other multiply. *)
Section Compose.
Variables A B C : Type.
Variable dA : list A -> list A -> nat. Variable dB : list B -> list B -> nat. Variable dC : list C -> list C -> nat.
Definition stable {X Y} (dX : X -> X -> nat) (dY : Y -> Y -> nat) (f : X -> Y) (c : nat) := forall xs ys, dY (f xs) (f ys) <= c * dX xs ys.

Theorem compose_stable : forall f g c d, stable dA dB f c -> stable dB dC g d -> stable dA dC (fun x => g (f x)) (d * c).
Proof. intros f g c d Hf Hg xs ys. specialize (Hf xs ys). specialize (Hg (f xs) (f ys)). nia. Qed.
End Compose.

(* A map that makes at most m rows of a row, as a function of that row, is m-stable. m = 1: quantize.md, select.md,
   rescale.md, clip_rows.md, l1_embedding.md, jl_projection.md, fourier_features.md and ingest.md, Lemma 1 of each. That
   the code's image is a function of the row is not shown here. *)
Section Rows.
Variables A B : Type.
Variable eqA : forall x y : A, {x = y} + {x <> y}. Variable eqB : forall x y : B, {x = y} + {x <> y}.

Lemma flat_map_perm : forall (g : A -> list B) xs ys, Permutation xs ys -> Permutation (flat_map g xs) (flat_map g ys).
Proof. intros. apply Permutation_flat_map. assumption. Qed.
Lemma flat_map_length_le : forall (g : A -> list B) m xs, (forall r, length (g r) <= m) -> length (flat_map g xs) <= m * length xs.
Proof. intros g m xs H. induction xs as [|x xs IH]; simpl; [lia|]. rewrite app_length. specialize (H x). nia. Qed.
Theorem row_map : forall (g : A -> list B) m, (forall r, length (g r) <= m) -> stable (distance A eqA) (distance B eqB) (flat_map g) m.
Proof. intros g m H xs ys. destruct (distance_split A eqA xs ys) as (a & b & z & Ha & Hb & E). rewrite <- E.
  rewrite (distance_permutation B eqB _ _ (flat_map g a ++ flat_map g z) (flat_map g b ++ flat_map g z)).
  - pose proof (distance_append B eqB (flat_map g a) (flat_map g z) (flat_map g b) (flat_map g z)).
    assert (distance B eqB (flat_map g z) (flat_map g z) = 0) by (apply distance_zero; reflexivity).
    pose proof (distance_length B eqB (flat_map g a) (flat_map g b)).
    pose proof (flat_map_length_le g m a H). pose proof (flat_map_length_le g m b H). nia.
  - rewrite <- flat_map_app. apply flat_map_perm. assumption.
  - rewrite <- flat_map_app. apply flat_map_perm. assumption. Qed.
Corollary map_stable : forall g : A -> B, stable (distance A eqA) (distance B eqB) (map g) 1.
Proof. intros g xs ys. pose proof (row_map (fun r => [g r]) 1 ltac:(simpl; lia) xs ys) as H.
  assert (E : forall l, flat_map (fun r => [g r]) l = map g l) by (induction l; simpl; congruence). rewrite !E in H. assumption. Qed.

(* One row more is one image more. *)
Corollary map_attained : forall (g : A -> B) x xs, distance B eqB (map g (x :: xs)) (map g xs) = 1.
Proof. intros. simpl. apply distance_add_one. Qed.
End Rows.
Theorem filter_stable : forall A eqA (p : A -> bool), stable (distance A eqA) (distance A eqA) (filter p) 1.
Proof. intros A eqA p xs ys. pose proof (row_map A A eqA eqA (fun r => if p r then [r] else []) 1 ltac:(intro q; cbv beta; destruct (p q); simpl; lia) xs ys) as H.
  assert (E : forall l, flat_map (fun r => if p r then [r] else []) l = filter p l) by (induction l; simpl; [reflexivity|destruct (p a); simpl; congruence]).
  rewrite !E in H. assumption. Qed.

(* A public predicate cuts two datasets in two; the distances of the parts add up to the distance of the whole. *)
Section Partition.
Variable A : Type. Variable eqA : forall x y : A, {x = y} + {x <> y}.
Theorem partition_distance : forall (p : A -> bool) xs ys,
  distance A eqA (filter p xs) (filter p ys) + distance A eqA (filter (fun r => negb (p r)) xs) (filter (fun r => negb (p r)) ys) = distance A eqA xs ys.
Proof. intros p xs ys. set (s := support A eqA [xs; ys]).
  assert (I : forall q, incl (filter q xs) s /\ incl (filter q ys) s).
  { intro q. split; intros z Hz; apply filter_In in Hz; destruct Hz; unfold s;
      [apply (support_incl A eqA [xs;ys] xs)|apply (support_incl A eqA [xs;ys] ys)]; simpl; tauto. }
  assert (Hn : NoDup s) by apply support_nodup.
  rewrite (distance_counts A eqA (filter p xs) (filter p ys) s), (distance_counts A eqA (filter (fun r => negb (p r)) xs) (filter (fun r => negb (p r)) ys) s),
    (distance_counts A eqA xs ys s); try apply I; try assumption;
    try (apply (support_incl A eqA [xs;ys]); simpl; tauto).
  assert (Cf : forall q l v, count_occ eqA (filter q l) v = if q v then count_occ eqA l v else 0).
  { intros q l v. induction l as [|x l IH]; simpl; [destruct (q v); reflexivity|].
    destruct (q x) eqn:Q; simpl; destruct (eqA x v) as [->|]; rewrite ?IH, ?Q; destruct (q v) eqn:Q'; congruence || lia. }
  clear Hn I. induction s as [|v s IH]; simpl; [reflexivity|]. rewrite !Cf. destruct (p v); simpl; lia. Qed.
End Partition.
