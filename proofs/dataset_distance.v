(* The symmetric distance of datasets. (a) It is the sum over values of the difference of multiplicities. (b) It depends
   on the multisets alone, is symmetric, 0 for permutations only, and obeys the triangle inequality. (c) It is the length
   of the shortest chain of datasets each of which has one record more or less than the one before. (d) So a cost that
   grows by at most c a record is at most c n at distance n. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
From Proofs Require Import sensitivity.
Open Scope nat_scope.

Section Bridge.
Variable R : Type.
Variable eq_dec : forall x y : R, {x = y} + {x <> y}.
Notation cnt := (count_occ eq_dec).
Notation distance := (distance R eq_dec).
Notation vsum := (values_sum R eq_dec).

Lemma vsum_ext : forall vs xs ys xs' ys',
  (forall v, cnt xs v - cnt ys v + (cnt ys v - cnt xs v) = cnt xs' v - cnt ys' v + (cnt ys' v - cnt xs' v)) ->
  vsum vs xs ys = vsum vs xs' ys'.
Proof. induction vs as [|v r IH]; simpl; intros xs ys xs' ys' H; [reflexivity|].
  rewrite (IH xs ys xs' ys' H). specialize (H v). lia. Qed.

Lemma vsum_notin : forall vs x r ys, ~ In x vs -> vsum vs (x :: r) ys = vsum vs r ys.
Proof. induction vs as [|v vs IH]; intros x r ys H; [reflexivity|]. cbn [values_sum].
  rewrite IH by (intro; apply H; right; assumption).
  rewrite count_occ_cons_neq; [reflexivity|]. intros ->. apply H. left. reflexivity. Qed.

Lemma vsum_new : forall vs x r ys, NoDup vs -> In x vs -> cnt ys x = 0 -> vsum vs (x :: r) ys = S (vsum vs r ys).
Proof. induction vs as [|v vs IH]; intros x r ys Hn Hi Hc; [contradiction|]. cbn [values_sum].
  apply NoDup_cons_iff in Hn. destruct Hn as [Hv Hn].
  destruct (eq_dec x v) as [->|Hne].
  - rewrite vsum_notin by assumption. rewrite count_occ_cons_eq by reflexivity. lia.
  - rewrite IH; [|assumption|destruct Hi; [congruence|assumption]|assumption].
    rewrite count_occ_cons_neq by assumption. lia. Qed.

Lemma vsum_nil : forall ys vs, NoDup vs -> incl ys vs -> vsum vs [] ys = length ys.
Proof. induction ys as [|y ys IH]; intros vs Hn Hi.
  - clear. induction vs as [|v r IHv]; simpl in *; [reflexivity|lia].
  - assert (forall ws, NoDup ws -> vsum ws [] (y :: ys) = vsum ws [] ys + (if in_dec eq_dec y ws then 1 else 0)) as G.
    { induction ws as [|w ws IHw]; intro Hw; [reflexivity|].
      apply NoDup_cons_iff in Hw. destruct Hw as [Hw1 Hw2]. cbn [values_sum]. rewrite (IHw Hw2). cbn [count_occ].
      destruct (in_dec eq_dec y ws) as [i|i], (in_dec eq_dec y (w :: ws)) as [j|j], (eq_dec y w) as [e|e]; subst;
        simpl in *; try lia; exfalso; tauto || (destruct j as [j|j]; [congruence|tauto]). }
    rewrite G by assumption. destruct (in_dec eq_dec y vs) as [_|Hno].
    + rewrite IH; [simpl; lia|assumption|]. intros z Hz. apply Hi. right. assumption.
    + exfalso. apply Hno. apply Hi. left. reflexivity. Qed.

(* (a), over any list of different values that holds all that occur. *)
Theorem distance_counts : forall xs ys vs, NoDup vs -> incl xs vs -> incl ys vs -> distance xs ys = vsum vs xs ys.
Proof. induction xs as [|x r IH]; intros ys vs Hn Hx Hy.
  - simpl. symmetry. apply vsum_nil; assumption.
  - assert (incl r vs) as Hr by (intros z Hz; apply Hx; right; assumption). cbn [sensitivity.distance].
    destruct (in_dec eq_dec x ys) as [Hi|Hi].
    + pose proof (drop_perm R eq_dec x ys Hi) as HP. rewrite (Permutation_count_occ eq_dec) in HP.
      rewrite (IH (drop R eq_dec x ys) vs Hn Hr).
      * apply vsum_ext. intro v. rewrite (HP v). cbn [count_occ]. destruct (eq_dec x v); lia.
      * intros z Hz. apply Hy. apply (Permutation_in z (Permutation_sym (drop_perm R eq_dec x ys Hi))). right. assumption.
    + rewrite (IH ys vs Hn Hr Hy). symmetry. apply vsum_new; [assumption| |].
      * apply Hx. left. reflexivity.
      * apply count_occ_not_In. assumption. Qed.

Definition support (ls : list (list R)) := nodup eq_dec (concat ls).
Lemma support_nodup : forall ls, NoDup (support ls). Proof. intro. apply NoDup_nodup. Qed.
Lemma support_incl : forall ls l, In l ls -> incl l (support ls).
Proof. intros ls l H z Hz. apply nodup_In. apply in_concat. exists l. split; assumption. Qed.
Hint Resolve support_nodup : core.
Ltac sup := apply support_incl; simpl; tauto.

(* (b) *)
Theorem distance_permutation : forall xs ys xs' ys', Permutation xs xs' -> Permutation ys ys' -> distance xs ys = distance xs' ys'.
Proof. intros. rewrite (distance_counts xs ys (support [xs;ys;xs';ys'])), (distance_counts xs' ys' (support [xs;ys;xs';ys'])); auto; try sup.
  apply vsum_ext. intro v. rewrite (Permutation_count_occ eq_dec) in H, H0. rewrite H, H0. reflexivity. Qed.
Theorem distance_symmetric : forall xs ys, distance xs ys = distance ys xs.
Proof. intros. rewrite (distance_counts xs ys (support [xs;ys])), (distance_counts ys xs (support [xs;ys])); auto; try sup.
  generalize (support [xs;ys]). induction l; simpl; [reflexivity|]. lia. Qed.
Theorem distance_triangle : forall xs ys zs, distance xs zs <= distance xs ys + distance ys zs.
Proof. intros. rewrite (distance_counts xs zs (support [xs;ys;zs])), (distance_counts xs ys (support [xs;ys;zs])),
    (distance_counts ys zs (support [xs;ys;zs])); auto; try sup.
  generalize (support [xs;ys;zs]). induction l as [|v l IH]; simpl; [lia|]. lia. Qed.
Theorem distance_zero : forall xs ys, distance xs ys = 0 <-> Permutation xs ys.
Proof. split; intro H.
  - rewrite (Permutation_count_occ eq_dec). intro v.
    rewrite (distance_counts xs ys (support [xs;ys])) in H; auto; try sup.
    destruct (in_dec eq_dec v (support [xs;ys])) as [Hi|Hi].
    + revert H Hi. generalize (support [xs;ys]). induction l as [|w l IH]; simpl; [contradiction|].
      intros E [->|Hi]; [lia|apply IH; [lia|assumption]].
    + rewrite !(proj1 (count_occ_not_In _ _ _)); [reflexivity| |]; intro Hz; apply Hi;
        [apply (support_incl [xs;ys] ys)|apply (support_incl [xs;ys] xs)]; simpl; tauto.
  - rewrite (distance_permutation xs ys xs xs); [|reflexivity|symmetry; assumption].
    rewrite (distance_counts xs xs (support [xs])); auto; try sup.
    generalize (support [xs]). induction l; simpl; lia. Qed.
Theorem distance_append : forall a b a' b', distance (a ++ b) (a' ++ b') <= distance a a' + distance b b'.
Proof. intros. set (s := support [a;b;a';b']).
  rewrite (distance_counts (a++b) (a'++b') s), (distance_counts a a' s), (distance_counts b b' s); unfold s; auto; try sup.
  - generalize (support [a;b;a';b']). induction l as [|v l IH]; simpl; [lia|]. rewrite !count_occ_app. lia.
  - apply incl_app; sup.
  - apply incl_app; sup. Qed.
Theorem distance_length : forall xs ys, distance xs ys <= length xs + length ys.
Proof. intros. pose proof (distance_triangle xs [] ys). rewrite (distance_symmetric xs []) in H. simpl in H. lia. Qed.
Theorem distance_add_one : forall x xs, distance (x :: xs) xs = 1.
Proof. intros. rewrite (distance_counts (x::xs) xs (support [x::xs;xs])); auto; try sup.
  assert (In x (support [x::xs;xs])) as Hi by (apply (support_incl [x::xs;xs] (x::xs)); simpl; tauto).
  pose proof (support_nodup [x::xs;xs]) as Hn. revert Hi Hn. generalize (support [x::xs;xs]).
  assert (Z : forall l, vsum l xs xs = 0) by (induction l; cbn [values_sum]; lia).
  induction l as [|v l IH]; intros Hi Hn; [contradiction|]. cbn [values_sum]. apply NoDup_cons_iff in Hn. destruct Hn as [Hv Hn].
  destruct (eq_dec x v) as [->|Hne].
  - rewrite vsum_notin by assumption. rewrite Z, count_occ_cons_eq by reflexivity. lia.
  - rewrite IH; [|destruct Hi; [congruence|assumption]|assumption]. rewrite count_occ_cons_neq by assumption. lia. Qed.

(* (c) Neighbours have one record more or less; a chain of n steps. *)
Definition neighbour (xs ys : list R) := exists x, Permutation xs (x :: ys) \/ Permutation ys (x :: xs).
Inductive chain : nat -> list R -> list R -> Prop :=
| chain_end : forall xs ys, Permutation xs ys -> chain 0 xs ys
| chain_step : forall n xs ys zs, neighbour xs ys -> chain n ys zs -> chain (S n) xs zs.

Lemma neighbour_perm_l : forall xs xs' ys, Permutation xs xs' -> neighbour xs ys -> neighbour xs' ys.
Proof. intros xs xs' ys H [x [A|A]]; exists x; [left|right]; [rewrite <- H|rewrite A, H]; auto. Qed.
Lemma chain_perm_l : forall n xs xs' ys, Permutation xs xs' -> chain n xs ys -> chain n xs' ys.
Proof. intros n xs xs' ys H C. destruct C.
  - constructor. rewrite <- H. assumption.
  - econstructor; [eapply neighbour_perm_l; eassumption|eassumption]. Qed.
Lemma chain_app : forall n m xs ys zs, chain n xs ys -> chain m ys zs -> chain (n + m) xs zs.
Proof. intros n m xs ys zs C. induction C; intro D; simpl.
  - apply (chain_perm_l _ ys); [symmetry|]; assumption.
  - econstructor; [eassumption|auto]. Qed.
Lemma neighbour_sym : forall xs ys, neighbour xs ys -> neighbour ys xs.
Proof. intros xs ys [x [A|A]]; exists x; [right|left]; assumption. Qed.
Lemma chain_take : forall a z, chain (length a) (a ++ z) z.
Proof. induction a as [|x a IH]; intro z; simpl.
  - constructor. reflexivity.
  - apply (chain_step _ _ (a ++ z)); [exists x; left; reflexivity|apply IH]. Qed.
Lemma chain_give : forall b z, chain (length b) z (b ++ z).
Proof. induction b as [|x b IH]; intro z; simpl.
  - constructor. reflexivity.
  - replace (S (length b)) with (length b + 1) by lia. apply (chain_app _ _ _ (b ++ z)); [apply IH|].
    apply (chain_step _ _ (x :: b ++ z)); [exists x; right; reflexivity|constructor; reflexivity]. Qed.

(* A chain of that length exists, and no shorter one. *)
Theorem distance_is_a_chain : forall xs ys, chain (distance xs ys) xs ys.
Proof. intros. destruct (distance_split R eq_dec xs ys) as (a & b & z & Ha & Hb & E). rewrite <- E.
  apply (chain_app _ _ _ z).
  - apply (chain_perm_l _ (a ++ z)); [symmetry; assumption|apply chain_take].
  - replace (length b) with (length b + 0) by lia. apply (chain_app _ _ _ (b ++ z)); [apply chain_give|].
    constructor. symmetry. assumption. Qed.
Theorem distance_of_neighbours : forall xs ys, neighbour xs ys -> distance xs ys = 1.
Proof. intros xs ys [x [A|A]].
  - rewrite (distance_permutation _ _ _ ys A (Permutation_refl ys)). apply distance_add_one.
  - rewrite distance_symmetric. rewrite (distance_permutation _ _ _ xs A (Permutation_refl xs)). apply distance_add_one. Qed.
Theorem chain_bounds_distance : forall n xs ys, chain n xs ys -> distance xs ys <= n.
Proof. intros n xs ys C. induction C.
  - apply distance_zero in H. lia.
  - pose proof (distance_triangle xs ys zs). rewrite (distance_of_neighbours _ _ H) in H0. lia. Qed.

(* (d) Group privacy for costs that add. `differential_privacy.v` has the one for factors that multiply. *)
Theorem group_additive : forall (d : list R -> list R -> Z) (c : Z), (0 <= c)%Z ->
  (forall xs ys, Permutation xs ys -> (d xs ys <= 0)%Z) -> (forall xs ys zs, (d xs zs <= d xs ys + d ys zs)%Z) ->
  (forall xs ys, neighbour xs ys -> (d xs ys <= c)%Z) ->
  forall xs ys n, distance xs ys <= n -> (d xs ys <= c * Z.of_nat n)%Z.
Proof. intros d c Hc H0 Ht H1 xs ys n Hn.
  assert (forall m u v, chain m u v -> (d u v <= c * Z.of_nat m)%Z) as G.
  { intros m u v C. induction C; [specialize (H0 _ _ H); lia|].
    specialize (Ht xs0 ys0 zs). specialize (H1 _ _ H). lia. }
  specialize (G _ _ _ (distance_is_a_chain xs ys)). nia. Qed.
End Bridge.
