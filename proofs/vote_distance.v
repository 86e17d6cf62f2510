(* Distances of counts that also bound the cells of a step: VectorNorm("linf", steps=True, touched=c). A step moves all
   counts up by 0 or 1, or all down by 0 or 1, and at most c of them. `walk m c d h h'`: d steps lead from h to h' over m
   cells. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance sparse_sums vote_counts.
Open Scope Z_scope.

Section Steps.
Variable m c : nat.

Definition moved (h h' : nat -> Z) := filter (fun i => negb (h i =? h' i)) (seq 0 m).
Definition one_step (h h' : nat -> Z) := ((forall i, (i < m)%nat -> h i <= h' i <= h i + 1) \/ (forall i, (i < m)%nat -> h' i <= h i <= h' i + 1)) /\ (length (moved h h') <= c)%nat.
Inductive walk : nat -> (nat -> Z) -> (nat -> Z) -> Prop :=
| walk_end : forall h h', (forall i, (i < m)%nat -> h i = h' i) -> walk 0 h h'
| walk_step : forall d h k h', one_step h k -> walk d k h' -> walk (S d) h h'.

Lemma upto_filter : forall (p : nat -> bool) n, upto (fun i => if p i then 1 else 0) n = Z.of_nat (length (filter p (seq 0 n))).
Proof. intros p n. induction n as [|n IH]; [reflexivity|]. rewrite seq_S, filter_app, app_length. cbn [upto]. rewrite IH. simpl. destruct (p n); simpl; lia. Qed.
Lemma upto_mono : forall g h n, (forall i, (i < n)%nat -> g i <= h i) -> upto g n <= upto h n.
Proof. induction n; simpl; intro H; [lia|]. specialize (H n ltac:(lia)) as Hn. specialize (IHn ltac:(intros; apply H; lia)). lia. Qed.
Lemma one_step_l1 : forall h h', one_step h h' -> upto (fun i => Z.abs (h i - h' i)) m <= Z.of_nat c.
Proof. intros h h' [H1 H2]. eapply Z.le_trans; [|apply inj_le; exact H2]. unfold moved. rewrite <- upto_filter.
  apply upto_mono. intros i Hi. destruct (Z.eqb_spec (h i) (h' i)) as [E|E]; simpl; [lia|]. destruct H1 as [H1|H1]; specialize (H1 i Hi); lia. Qed.

(* gaussian_top_k.md, Lemma 1; noise_threshold.md, Lemmas 1 and 3; limited_domain.md, Lemma 1. d steps change the counts
   by at most c d in L1, d in L-infinity, c d^2 in squared L2, and move at most c d of them. *)
Theorem walk_l1 : forall d h h', walk d h h' -> upto (fun i => Z.abs (h i - h' i)) m <= Z.of_nat c * Z.of_nat d.
Proof. induction 1 as [h h' H|d h k h' H W IH].
  - rewrite (upto_eq_lt _ (fun _ => 0)) by (intros i Hi; rewrite (H i Hi); lia). clear. induction m; simpl; lia.
  - pose proof (one_step_l1 h k H) as A.
    assert (upto (fun i => Z.abs (h i - h' i)) m <= upto (fun i => Z.abs (h i - k i) + Z.abs (k i - h' i)) m) as B by (apply upto_mono; intros; lia).
    rewrite upto_plus in B. lia. Qed.
Theorem walk_linf : forall d h h', walk d h h' -> forall i, (i < m)%nat -> Z.abs (h i - h' i) <= Z.of_nat d.
Proof. induction 1 as [h h' H|d h k h' [H H2] W IH]; intros i Hi; [rewrite (H i Hi); lia|]. specialize (IH i Hi). destruct H as [H|H]; specialize (H i Hi); lia. Qed.

Theorem walk_l2 : forall d h h', walk d h h' -> upto (fun i => (h i - h' i) * (h i - h' i)) m <= Z.of_nat c * (Z.of_nat d * Z.of_nat d).
Proof. intros d h h' W. pose proof (walk_l1 d h h' W) as A. pose proof (walk_linf d h h' W) as B.
  assert (upto (fun i => (h i - h' i) * (h i - h' i)) m <= Z.of_nat d * upto (fun i => Z.abs (h i - h' i)) m).
  { rewrite <- upto_scale. apply upto_mono. intros i Hi. specialize (B i Hi). rewrite <- (Z.abs_square (h i - h' i)). nia. }
  nia. Qed.

Theorem walk_moved : forall d h h', walk d h h' -> (length (moved h h') <= c * d)%nat.
Proof. intros d h h' W. pose proof (walk_l1 d h h' W) as A. apply Nat2Z.inj_le. rewrite Nat2Z.inj_mul. eapply Z.le_trans; [|exact A].
  unfold moved. rewrite <- upto_filter. apply upto_mono. intros i Hi. destruct (Z.eqb_spec (h i) (h' i)); simpl; lia. Qed.
End Steps.

(* Where c bounds the cells the largest rise plus the largest fall is not the number of steps: from (0, 0) to (1, 1) with
   c = 1. *)
Theorem rise_plus_fall_is_not_the_distance : ~ walk 2 1 1 (fun _ => 0) (fun _ => 1) /\ path 1 0 (fun _ => 0) (fun _ => 1).
Proof. split.
  - intro W. pose proof (walk_l1 2 1 1 _ _ W) as H. vm_compute in H. apply H. reflexivity.
  - apply (p_up _ _ _ (fun _ => 1)); [intro; lia|constructor; reflexivity]. Qed.

(* The distance in steps may be less than the number of users: two users with different items are one step. *)
Theorem users_exceed_steps : let xs := [[0%nat]; [1%nat]] in
  (forall i, 0 <= total (list nat) (votes (list nat) (fun u => u)) xs i - total (list nat) (votes (list nat) (fun u => u)) [] i <= 1)
  /\ distance (list nat) (list_eq_dec Nat.eq_dec) xs [] = 2%nat.
Proof. split; [|reflexivity]. intro i. destruct i as [|[|i]]; vm_compute; split; discriminate. Qed.
Open Scope nat_scope.

(* The exact distance. A step up takes the cells with the most left to rise first. *)
Section Sched.
Variables m c : nat.
Definition tot (r : nat -> nat) (l : list nat) := list_sum (map r l).
Notation all := (seq 0 m).
Definition inb (S : list nat) (i : nat) : bool := if in_dec Nat.eq_dec i S then true else false.
Definition dec (S : list nat) (r : nat -> nat) (i : nat) := if inb S i then r i - 1 else r i.
Lemma inb_in : forall S i, inb S i = true <-> In i S.
Proof. intros. unfold inb. destruct (in_dec Nat.eq_dec i S); split; intros; try assumption; try reflexivity; try discriminate; contradiction. Qed.
Lemma tot_dec : forall S r l, (forall i, In i S -> 0 < r i) -> tot (dec S r) l + length (filter (inb S) l) = tot r l.
Proof. intros S r l H. unfold tot. induction l as [|i l IH]; simpl; [reflexivity|]. unfold dec at 1. destruct (inb S i) eqn:E; simpl.
  - apply inb_in in E. specialize (H i E). lia. - lia. Qed.
Lemma inside_len : forall S, NoDup S -> incl S all -> length (filter (inb S) all) = length S.
Proof. intros S Hn Hi. apply Nat.le_antisymm.
  - apply NoDup_incl_length; [apply NoDup_filter, seq_NoDup|]. intros i H. apply filter_In in H. apply inb_in, H.
  - apply NoDup_incl_length; [assumption|]. intros i H. apply filter_In. split; [apply Hi; assumption|apply inb_in; assumption]. Qed.
Lemma tot_only : forall S r a l, (forall i, In i l -> r i <= a) -> (forall i, In i l -> 0 < r i -> In i S) -> tot r l <= length (filter (inb S) l) * a.
Proof. intros S r a l H1 H2. unfold tot. induction l as [|i l IH]; simpl; [lia|]. specialize (IH ltac:(intros; apply H1; right; assumption) ltac:(intros; apply H2; [right|]; assumption)).
  specialize (H1 i (or_introl eq_refl)). destruct (inb S i) eqn:E; simpl; [lia|].
  destruct (Nat.eq_dec (r i) 0) as [->|N]; [simpl; lia|]. exfalso. assert (In i S) by (apply H2; [left; reflexivity|lia]). apply inb_in in H. congruence. Qed.
Lemma tot_full : forall r a l, length (filter (fun i => Nat.eqb (r i) a) l) * a <= tot r l.
Proof. intros r a l. unfold tot. induction l as [|i l IH]; simpl; [lia|]. destruct (Nat.eqb_spec (r i) a); simpl; lia. Qed.

(* Which cells the next step moves: those that need every step that is left, then others. *)
Lemma choose : forall a r, (forall i, i < m -> r i <= S a) -> tot r all <= c * S a ->
  exists T, NoDup T /\ incl T all /\ length T <= c /\ (forall i, In i T -> 0 < r i) /\ (forall i, i < m -> dec T r i <= a) /\ tot (dec T r) all <= c * a.
Proof. intros a r Hm Hs.
  set (F := filter (fun i => Nat.eqb (r i) (S a)) all). set (P := filter (fun i => andb (Nat.ltb 0 (r i)) (Nat.ltb (r i) (S a))) all).
  assert (LF : length F <= c) by (pose proof (tot_full r (S a) all); fold F in H; nia).
  assert (NFP : NoDup (F ++ P)).
  { assert (forall (A B : list nat), NoDup A -> NoDup B -> (forall x, In x A -> ~ In x B) -> NoDup (A ++ B)) as G.
    { induction A as [|x A IH]; simpl; intros B HA HB D; [assumption|]. apply NoDup_cons_iff in HA. destruct HA as [H1 H2]. constructor.
      - rewrite in_app_iff. intros [E|E]; [contradiction|]. apply (D x); [left; reflexivity|assumption].
      - apply IH; auto. }
    apply G; try (apply NoDup_filter, seq_NoDup). intros x Hx Hy. apply filter_In in Hx. apply filter_In in Hy. destruct Hx as [_ Hx], Hy as [_ Hy].
    apply Nat.eqb_eq in Hx. apply Bool.andb_true_iff in Hy. destruct Hy as [_ Hy]. apply Nat.ltb_lt in Hy. lia. }
  set (T := firstn c (F ++ P)).
  assert (IT : forall i, In i T -> In i (F ++ P)).
  { intros i Hi. rewrite <- (firstn_skipn c (F ++ P)). apply in_or_app. left. assumption. }
  assert (FT : forall i, In i F -> In i T).
  { intros i Hi. unfold T. rewrite firstn_app. apply in_or_app. left. rewrite firstn_all2 by assumption. assumption. }
  assert (NT : NoDup T).
  { pose proof NFP as Q. rewrite <- (firstn_skipn c (F ++ P)) in Q. fold T in Q. clear - Q. induction T as [|x T IH]; [constructor|].
    simpl in Q. apply NoDup_cons_iff in Q. destruct Q as [Q1 Q2]. constructor; [intro; apply Q1; apply in_or_app; left; assumption|auto]. }
  assert (AT : incl T all).
  { intros i Hi. apply IT in Hi. apply in_app_or in Hi. destruct Hi as [Hi|Hi]; apply filter_In in Hi; tauto. }
  assert (PT : forall i, In i T -> 0 < r i).
  { intros i Hi. apply IT in Hi. apply in_app_or in Hi. destruct Hi as [Hi|Hi]; apply filter_In in Hi; destruct Hi as [_ Hi].
    - apply Nat.eqb_eq in Hi. lia. - apply Bool.andb_true_iff in Hi. destruct Hi as [Hi _]. apply Nat.ltb_lt in Hi. lia. }
  assert (MT : forall i, i < m -> dec T r i <= a).
  { intros i Hi. unfold dec. specialize (Hm i Hi). destruct (inb T i) eqn:E; [lia|].
    destruct (Nat.eq_dec (r i) (S a)) as [Q|Q]; [|lia]. exfalso. assert (In i F) as G by (apply filter_In; split; [apply in_seq; lia|apply Nat.eqb_eq; assumption]).
    apply FT in G. apply inb_in in G. congruence. }
  exists T. split; [assumption|split; [assumption|split; [unfold T; rewrite firstn_length; lia|split; [assumption|split; [assumption|]]]]].
  pose proof (tot_dec T r all PT) as D. rewrite (inside_len T NT AT) in D.
  destruct (le_lt_dec c (length (F ++ P))) as [L|L].
  - assert (length T = c) by (unfold T; rewrite firstn_length; lia). lia.
  - assert (E : T = F ++ P) by (apply firstn_all2; lia).
    assert (tot (dec T r) all <= length (filter (inb T) all) * a).
    { apply tot_only; [intros i Hi; apply in_seq in Hi; apply MT; lia|]. intros i Hi Hp. rewrite E. apply in_or_app. unfold dec in Hp. apply in_seq in Hi.
      destruct (Nat.eq_dec (r i) (S a)) as [Q|Q]; [left; apply filter_In; split; [apply in_seq; lia|apply Nat.eqb_eq; assumption]|].
      right. apply filter_In. split; [apply in_seq; lia|]. apply Bool.andb_true_iff. split; apply Nat.ltb_lt; [destruct (inb T i); lia|]. specialize (Hm i ltac:(lia)). lia. }
    rewrite (inside_len T NT AT) in H. assert (length T <= c) by (unfold T; rewrite firstn_length; lia). nia. Qed.

Open Scope Z_scope.
Lemma moved_len : forall h k T, NoDup T -> (forall i, (i < m)%nat -> h i <> k i -> In i T) -> (length (moved m h k) <= length T)%nat.
Proof. intros h k T Hn H. unfold moved. apply NoDup_incl_length; [apply NoDup_filter, seq_NoDup|]. intros i Hi. apply filter_In in Hi. destruct Hi as [Hi E].
  apply in_seq in Hi. apply H; [lia|]. destruct (Z.eqb_spec (h i) (k i)); [discriminate|assumption]. Qed.

(* If every rise is at most a, and all together at most c a, then a steps are enough. *)
Theorem up_walks : forall a r h, (forall i, (i < m)%nat -> (r i <= a)%nat) -> (tot r (seq 0 m) <= c * a)%nat -> walk m c a h (fun i => h i + Z.of_nat (r i)).
Proof. induction a as [|a IH]; intros r h Hm Hs.
  - constructor. intros i Hi. specialize (Hm i Hi). lia.
  - destruct (choose a r Hm Hs) as (T & N & I & L & P & M & Q).
    apply (walk_step m c a h (fun i => h i + (if inb T i then 1 else 0))).
    + split; [left; intros i Hi; destruct (inb T i); lia|]. eapply Nat.le_trans; [|exact L]. apply moved_len; [assumption|].
      intros i Hi E. apply inb_in. destruct (inb T i); [reflexivity|lia].
    + assert (W := IH (dec T r) (fun i => h i + (if inb T i then 1 else 0)) M Q). cbv beta in W.
      assert (X : forall d h0 h1 h2, (forall i, (i < m)%nat -> h1 i = h2 i) -> walk m c d h0 h1 -> walk m c d h0 h2).
      { intros d h0 h1 h2 Ex Wx. induction Wx as [g g' E|d g k g' O W' IHW]; [constructor; intros i Hi; rewrite E, Ex; auto|econstructor; [exact O|apply IHW; assumption]]. }
      eapply X; [|exact W]. intros i Hi. unfold dec. destruct (inb T i) eqn:E; [|lia]. apply inb_in in E. specialize (P i E). lia. Qed.
Lemma one_step_sym : forall h k, one_step m c h k -> one_step m c k h.
Proof. intros h k [[H|H] L]; (split; [tauto|]); eapply Nat.le_trans; try exact L; unfold moved; apply NoDup_incl_length; try apply NoDup_filter, seq_NoDup;
  intros i Hi; apply filter_In in Hi; apply filter_In; rewrite Z.eqb_sym; assumption. Qed.
Lemma walk_ext_l : forall d h g h', (forall i, (i < m)%nat -> h i = g i) -> walk m c d h h' -> walk m c d g h'.
Proof. intros d h g h' E W. destruct W as [h h' H|d h k h' [O L] W].
  - constructor. intros i Hi. rewrite <- E by assumption. auto.
  - apply (walk_step m c d g k); [|assumption]. split.
    + destruct O as [O|O]; [left|right]; intros i Hi; specialize (O i Hi); rewrite E in O by assumption; assumption.
    + unfold moved in *. assert (X : forall l, (forall i, In i l -> (i < m)%nat) -> filter (fun i => negb (h i =? k i)) l = filter (fun i => negb (g i =? k i)) l).
      { induction l as [|i l IH]; simpl; intro Hl; [reflexivity|]. rewrite (E i) by (apply Hl; auto). rewrite IH by auto. reflexivity. }
      rewrite <- X; [assumption|]. intros i Hi. apply in_seq in Hi. lia. Qed.
Lemma walk_app : forall d e h g h', walk m c d h g -> walk m c e g h' -> walk m c (d + e) h h'.
Proof. intros d e h g h' W. induction W as [h g E|d h k g O W IH]; intro V; simpl.
  - apply (walk_ext_l e g h h'); [intros; symmetry; auto|assumption].
  - econstructor; [exact O|auto]. Qed.
Lemma walk_sym : forall d h h', walk m c d h h' -> walk m c d h' h.
Proof. intros d h h' W. induction W as [h h' E|d h k h' O W IH]; [constructor; intros; symmetry; auto|].
  replace (S d) with (d + 1)%nat by lia. apply (walk_app d 1 h' k h); [assumption|]. apply (walk_step m c 0 k h); [apply one_step_sym; assumption|constructor; reflexivity]. Qed.

(* fits a r: every entry of r is at most a, and their sum at most c a. The least such a is D(r) = max(max r, ceil(sum r /
   c)) of vote_counts.md. *)
Definition rise (h h' : nat -> Z) (i : nat) := Z.to_nat (h' i - h i).
Definition fits (a : nat) (r : nat -> nat) := (forall i, (i < m)%nat -> (r i <= a)%nat) /\ (tot r (seq 0 m) <= c * a)%nat.
Lemma tot_le : forall r r' l, (forall i, In i l -> (r i <= r' i)%nat) -> (tot r l <= tot r' l)%nat.
Proof. intros r r' l H. unfold tot. induction l as [|i l IH]; simpl; [lia|]. specialize (IH ltac:(intros; apply H; right; assumption)). specialize (H i (or_introl eq_refl)). lia. Qed.
Lemma tot_moved : forall h k r r' l, (forall i, In i l -> (r i <= r' i + (if negb (h i =? k i)%Z then 1 else 0))%nat) -> (tot r l <= tot r' l + length (filter (fun i => negb (h i =? k i)%Z) l))%nat.
Proof. intros h k r r' l H. unfold tot. induction l as [|i l IH]; simpl; [lia|]. specialize (IH ltac:(intros; apply H; right; assumption)). specialize (H i (or_introl eq_refl)).
  destruct (negb (h i =? k i)%Z); simpl; lia. Qed.

(* vote_counts.md, after Lemma 1: d steps lead from h to h' exactly where d = a + b with a enough for the rises and b for
   the falls. So the fewest steps are D(rises) + D(falls). *)
Theorem exact_distance : forall d h h', walk m c d h h' <-> exists a b, (a + b = d)%nat /\ fits a (rise h h') /\ fits b (rise h' h).
Proof. intros d h h'. split.
  - induction 1 as [h h' E|d h k h' [O L] W (a & b & Eab & [A1 A2] & [B1 B2])].
    + exists 0%nat, 0%nat. assert (Z0 : forall l, (forall i, In i l -> (i < m)%nat) -> tot (rise h h') l = 0%nat /\ tot (rise h' h) l = 0%nat).
      { intros l. unfold tot, rise. induction l as [|i l IH]; simpl; intro Hl; [split; reflexivity|]. destruct (IH ltac:(auto)) as [I1 I2]. rewrite (E i) by (apply Hl; auto). rewrite I1, I2. split; lia. }
      destruct (Z0 (seq 0 m) ltac:(intros i Hi; apply in_seq in Hi; lia)) as [Z1 Z2].
      repeat split; try lia; intros i Hi; unfold rise; rewrite (E i Hi); lia.
    + destruct O as [O|O].
      * exists (S a), b. split; [lia|]. split; split.
        -- intros i Hi. specialize (O i Hi). specialize (A1 i Hi). unfold rise in *. lia.
        -- pose proof (tot_moved h k (rise h h') (rise k h') (seq 0 m)) as T. unfold moved in L.
           assert (tot (rise h h') (seq 0 m) <= tot (rise k h') (seq 0 m) + length (filter (fun i => negb (h i =? k i)%Z) (seq 0 m)))%nat; [|nia].
           apply T. intros i Hi. apply in_seq in Hi. specialize (O i ltac:(lia)). unfold rise. destruct (Z.eqb_spec (h i) (k i)); simpl; lia.
        -- intros i Hi. specialize (O i Hi). specialize (B1 i Hi). unfold rise in *. lia.
        -- eapply Nat.le_trans; [|exact B2]. apply tot_le. intros i Hi. apply in_seq in Hi. specialize (O i ltac:(lia)). unfold rise. lia.
      * exists a, (S b). split; [lia|]. split; split.
        -- intros i Hi. specialize (O i Hi). specialize (A1 i Hi). unfold rise in *. lia.
        -- eapply Nat.le_trans; [|exact A2]. apply tot_le. intros i Hi. apply in_seq in Hi. specialize (O i ltac:(lia)). unfold rise. lia.
        -- intros i Hi. specialize (O i Hi). specialize (B1 i Hi). unfold rise in *. lia.
        -- pose proof (tot_moved h k (rise h' h) (rise h' k) (seq 0 m)) as T. unfold moved in L.
           assert (tot (rise h' h) (seq 0 m) <= tot (rise h' k) (seq 0 m) + length (filter (fun i => negb (h i =? k i)%Z) (seq 0 m)))%nat; [|nia].
           apply T. intros i Hi. apply in_seq in Hi. specialize (O i ltac:(lia)). unfold rise. destruct (Z.eqb_spec (h i) (k i)); simpl; lia.
  - intros (a & b & <- & [A1 A2] & [B1 B2]).
    apply (walk_app a b h (fun i => h i + Z.of_nat (rise h h' i)) h'); [apply up_walks; assumption|]. apply walk_sym.
    apply (walk_ext_l b h' h' _) ; [reflexivity|].
    pose proof (up_walks b (rise h' h) h' B1 B2) as W. apply walk_sym in W. apply walk_sym.
    eapply walk_ext_l; [|exact W]. intros i Hi. unfold rise. lia. Qed.
End Sched.
