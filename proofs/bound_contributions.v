(* bound_contributions.md, Lemma 1. Of every person's rows the k least in a public order are kept. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance.
Open Scope nat_scope.

Section Bound.
Variable Person Row : Type.
Variable eqP : forall x y : Person, {x = y} + {x <> y}. Variable eqR : forall x y : Row, {x = y} + {x <> y}.
(* The public total order of contents; two contents of one rank are equal, which the page assumes of its digests. *)
Variable le : Row -> Row -> bool.
Hypothesis total_order : forall a b, le a b = true \/ le b a = true.
Hypothesis trans : forall a b c, le a b = true -> le b c = true -> le a c = true.
Hypothesis antisym : forall a b, le a b = true -> le b a = true -> a = b.
Variable k : nat.

Fixpoint insert (x : Row) (l : list Row) := match l with [] => [x] | y :: r => if le x y then x :: l else y :: insert x r end.
Definition sort (l : list Row) := fold_right insert [] l.
Lemma insert_comm : forall a b l, insert a (insert b l) = insert b (insert a l).
Proof. intros a b l. induction l as [|y l IH]; simpl.
  - destruct (le a b) eqn:E1, (le b a) eqn:E2; try reflexivity.
    + rewrite (antisym _ _ E1 E2). reflexivity.
    + destruct (total_order a b); congruence.
  - destruct (le b y) eqn:Eb, (le a y) eqn:Ea; simpl.
    + destruct (le a b) eqn:E1, (le b a) eqn:E2; rewrite ?Ea, ?Eb; try reflexivity.
      * rewrite (antisym _ _ E1 E2). reflexivity.
      * destruct (total_order a b); congruence.
    + rewrite Ea, Eb. destruct (le a b) eqn:E1; [|reflexivity]. rewrite (trans _ _ _ E1 Eb) in Ea. discriminate.
    + rewrite Ea, Eb. destruct (le b a) eqn:E2; [|reflexivity]. rewrite (trans _ _ _ E2 Ea) in Eb. discriminate.
    + rewrite Ea, Eb. rewrite IH. reflexivity. Qed.

(* The sorted list, so its first k, is a function of the multiset of the person's rows. *)
Lemma sort_perm : forall l l', Permutation l l' -> sort l = sort l'.
Proof. induction 1; simpl; try congruence. apply insert_comm. Qed.
Lemma insert_perm : forall x l, Permutation (x :: l) (insert x l).
Proof. induction l as [|y l IH]; simpl; [reflexivity|]. destruct (le x y); [reflexivity|]. rewrite perm_swap, IH. reflexivity. Qed.
Lemma sort_same : forall l, Permutation l (sort l).
Proof. induction l; simpl; [reflexivity|]. rewrite <- insert_perm, <- IHl. reflexivity. Qed.

Definition data := list (Person * Row).
Definition rows_of (p : Person) (ds : data) : list Row := map snd (filter (fun e => if eqP p (fst e) then true else false) ds).
Definition keep (l : list Row) := firstn k (sort l).
Definition persons (ds : data) := nodup eqP (map fst ds).
Definition kept (ds : data) : data := flat_map (fun p => map (pair p) (keep (rows_of p ds))) (persons ds).

Definition eqE : forall x y : Person * Row, {x = y} + {x <> y}. Proof. decide equality. Defined.
Notation distanceE := (distance (Person * Row) eqE). Notation distanceR := (distance Row eqR).

(* Distance by person: a person on one side alone counts 1, a person with other rows on the other side counts 2. *)
Definition cost (p : Person) (xs ys : data) : nat :=
  if Nat.eqb (distanceR (rows_of p xs) (rows_of p ys)) 0 then 0
  else match rows_of p xs, rows_of p ys with [], _ => 1 | _, [] => 1 | _, _ => 2 end.
Definition person_distance (xs ys : data) := list_sum (map (fun p => cost p xs ys) (nodup eqP (map fst xs ++ map fst ys))).

Lemma rows_perm : forall p xs ys, Permutation xs ys -> Permutation (rows_of p xs) (rows_of p ys).
Proof. intros. unfold rows_of. apply Permutation_map. induction H; simpl; try (destruct (eqP p (fst x))); eauto using perm_skip, perm_trans.
  destruct (eqP p (fst y)), (eqP p (fst x)); auto using perm_swap. Qed.
Lemma rows_none : forall p xs, ~ In p (map fst xs) -> rows_of p xs = [].
Proof. intros p xs H. unfold rows_of. induction xs as [|[q r] xs IH]; simpl in *; [reflexivity|].
  destruct (eqP p q) as [->|]; [tauto|]. apply IH. tauto. Qed.
Lemma keep_length : forall l, length (keep l) <= k. Proof. intro. unfold keep. rewrite firstn_length. lia. Qed.
Lemma keep_nil : keep [] = []. Proof. unfold keep. simpl. apply firstn_nil. Qed.

(* Over any list of different persons that holds all who occur, the kept rows are the same multiset. *)
Lemma kept_over : forall ds ps, NoDup ps -> incl (map fst ds) ps ->
  Permutation (kept ds) (flat_map (fun p => map (pair p) (keep (rows_of p ds))) ps).
Proof. intros ds ps Hn Hi. unfold kept, persons. set (f := fun p => map (pair p) (keep (rows_of p ds))).
  set (q := fun p => if in_dec eqP p (map fst ds) then true else false).
  assert (E : flat_map f ps = flat_map f (filter q ps)).
  { clear Hn Hi. induction ps as [|p ps IH]; simpl; [reflexivity|]. unfold q at 1. destruct (in_dec eqP p (map fst ds)) as [i|i]; simpl.
    - rewrite IH. reflexivity.
    - unfold f at 1. rewrite rows_none by assumption. rewrite keep_nil. simpl. assumption. }
  rewrite E. apply Permutation_flat_map. apply NoDup_Permutation; [apply NoDup_nodup|apply NoDup_filter; assumption|].
  intro p. rewrite nodup_In, filter_In. unfold q. split.
  - intro H. split; [apply Hi; assumption|]. destruct (in_dec eqP p (map fst ds)); [reflexivity|contradiction].
  - intros [_ H]. destruct (in_dec eqP p (map fst ds)); [assumption|discriminate]. Qed.

Lemma distance_flat_map : forall (f g : Person -> data) ps, distanceE (flat_map f ps) (flat_map g ps) <= list_sum (map (fun p => distanceE (f p) (g p)) ps).
Proof. intros f g ps. induction ps as [|p ps IH]; simpl; [lia|]. pose proof (distance_append _ eqE (f p) (flat_map f ps) (g p) (flat_map g ps)). lia. Qed.

Lemma part : forall p xs ys, distanceE (map (pair p) (keep (rows_of p xs))) (map (pair p) (keep (rows_of p ys))) <= k * cost p xs ys.
Proof. intros p xs ys. unfold cost. destruct (Nat.eqb_spec (distanceR (rows_of p xs) (rows_of p ys)) 0) as [E|E].
  - apply distance_zero in E. unfold keep. rewrite (sort_perm _ _ E).
    replace (distanceE _ _) with 0 by (symmetry; apply distance_zero; reflexivity). lia.
  - pose proof (distance_length _ eqE (map (pair p) (keep (rows_of p xs))) (map (pair p) (keep (rows_of p ys)))) as H.
    rewrite !map_length in H. pose proof (keep_length (rows_of p xs)). pose proof (keep_length (rows_of p ys)).
    destruct (rows_of p xs) as [|r1 l1], (rows_of p ys) as [|r2 l2]; rewrite ?keep_nil in *; simpl length in *; lia. Qed.

Lemma list_sum_perm : forall l l', Permutation l l' -> list_sum l = list_sum l'.
Proof. induction 1; simpl; lia. Qed.
Lemma cost_zero_sum : forall xs ys ps, NoDup ps -> incl (map fst xs ++ map fst ys) ps ->
  list_sum (map (fun p => k * cost p xs ys) ps) = k * person_distance xs ys.
Proof. intros xs ys ps Hn Hi. unfold person_distance. set (q := fun p => if in_dec eqP p (map fst xs ++ map fst ys) then true else false).
  assert (E : list_sum (map (fun p => k * cost p xs ys) ps) = k * list_sum (map (fun p => cost p xs ys) (filter q ps))).
  { clear Hn Hi. induction ps as [|p ps IH]; simpl; [lia|]. unfold q at 1. destruct (in_dec eqP p (map fst xs ++ map fst ys)) as [i|i]; simpl.
    - lia.
    - rewrite in_app_iff in i. unfold cost at 1. rewrite !rows_none by tauto. simpl. lia. }
  rewrite E. f_equal.
  assert (P : Permutation (filter q ps) (nodup eqP (map fst xs ++ map fst ys))).
  { apply NoDup_Permutation; [apply NoDup_filter; assumption|apply NoDup_nodup|]. intro p. rewrite nodup_In, filter_In. unfold q. split.
    - intros [_ H]. destruct (in_dec eqP p (map fst xs ++ map fst ys)); [assumption|discriminate].
    - intro H. split; [apply Hi; assumption|]. destruct (in_dec eqP p (map fst xs ++ map fst ys)); [reflexivity|contradiction]. }
  apply (Permutation_map (fun p => cost p xs ys)) in P. apply list_sum_perm. assumption. Qed.

(* The kept rows are at symmetric distance at most k times the distance by person. *)
Theorem bound_contributions : forall xs ys, distanceE (kept xs) (kept ys) <= k * person_distance xs ys.
Proof. intros xs ys. set (ps := nodup eqP (map fst xs ++ map fst ys)).
  assert (Hn : NoDup ps) by apply NoDup_nodup.
  assert (Hi : incl (map fst xs ++ map fst ys) ps) by (intros z Hz; apply nodup_In; assumption).
  rewrite (distance_permutation _ eqE _ _ _ _ (kept_over xs ps Hn ltac:(intros z Hz; apply Hi; apply in_or_app; tauto))
     (kept_over ys ps Hn ltac:(intros z Hz; apply Hi; apply in_or_app; tauto))).
  eapply Nat.le_trans; [apply distance_flat_map|]. rewrite <- (cost_zero_sum xs ys ps Hn Hi).
  clear Hn Hi. induction ps as [|p ps IH]; simpl; [lia|]. pose proof (part p xs ys). lia. Qed.

(* What is kept does not depend on the order of rows. *)
Theorem kept_order : forall xs ys, Permutation xs ys -> Permutation (kept xs) (kept ys).
Proof. intros xs ys H. apply (distance_zero _ eqE).
  assert (person_distance xs ys = 0) as E.
  { unfold person_distance. generalize (nodup eqP (map fst xs ++ map fst ys)). induction l as [|p l IH]; simpl; [reflexivity|].
    unfold cost at 1. rewrite (proj2 (distance_zero _ eqR _ _)); [simpl; assumption|apply rows_perm; assumption]. }
  pose proof (bound_contributions xs ys). rewrite E in H0. lia. Qed.

(* At most k rows of a person are kept. *)
Theorem kept_at_most : forall ds p, length (filter (fun e => if eqP p (fst e) then true else false) (kept ds)) <= k.
Proof. intros ds p. unfold kept. assert (Hn : NoDup (persons ds)) by apply NoDup_nodup. revert Hn. generalize (persons ds).
  induction l as [|q l IH]; intro Hn; simpl; [lia|]. apply NoDup_cons_iff in Hn. destruct Hn as [Hq Hn].
  rewrite filter_app, app_length.
  assert (F : forall q' m, q' <> p -> filter (fun e => if eqP p (fst e) then true else false) (map (pair q') m : data) = []).
  { intros q' m Hne. induction m as [|x m IHm]; simpl; [reflexivity|]. destruct (eqP p q'); [congruence|assumption]. }
  destruct (eqP q p) as [->|Hne].
  - assert (Z : forall l', ~ In p l' -> filter (fun e => if eqP p (fst e) then true else false) (flat_map (fun p0 => map (pair p0) (keep (rows_of p0 ds))) l') = []).
    { induction l' as [|q' l' IH']; simpl; intro H; [reflexivity|]. rewrite filter_app, IH' by tauto. rewrite F by (intro; subst; tauto). reflexivity. }
    rewrite Z by assumption. simpl. rewrite Nat.add_0_r.
    eapply Nat.le_trans; [|apply (keep_length (rows_of p ds))]. generalize (keep (rows_of p ds)). clear.
    intro m. induction m as [|x m IH]; simpl; [lia|]. destruct (eqP p p); simpl; [|congruence]. apply le_n_S. exact IH.
  - rewrite F by assumption. simpl. apply IH. assumption. Qed.

(* One person with k rows against none attains the bound. *)
Theorem bound_attained : forall p rs, length rs = k -> 0 < k -> person_distance (map (pair p) rs) [] = 1 /\ distanceE (kept (map (pair p) rs)) (kept []) = k.
Proof. intros p rs Hk H0.
  assert (Er : rows_of p (map (pair p) rs) = rs).
  { unfold rows_of. clear. induction rs as [|r rs IH]; simpl; [reflexivity|]. destruct (eqP p p); [simpl; congruence|congruence]. }
  assert (Ep : persons (map (pair p) rs) = [p]).
  { unfold persons. rewrite map_map. simpl. destruct rs as [|r rs]; [simpl in Hk; lia|]. clear. simpl.
    revert r. induction rs as [|r' rs IH]; intro r; simpl; [reflexivity|]. destruct (eqP p p) as [_|]; [|congruence]. apply (IH r). }
  split.
  - unfold person_distance. simpl map. rewrite app_nil_r. unfold persons in Ep. rewrite Ep. simpl. unfold cost. rewrite Er.
    destruct rs as [|r rs]; [simpl in Hk; lia|]. replace (rows_of p []) with (@nil Row) by reflexivity.
    rewrite distance_symmetric. simpl. reflexivity.
  - rewrite distance_symmetric. unfold kept at 1. simpl. unfold kept. rewrite Ep. simpl. rewrite app_nil_r, map_length, Er.
    unfold keep. rewrite firstn_length, <- (Permutation_length (sort_same rs)). lia. Qed.
End Bound.
