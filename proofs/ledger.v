(* Charge before answer: charge.md (dsl/run), Lemmas 1 and 3; postgres.md (accounting/ledger), Lemmas 2 and 3; store.md
   and postgres.md (accounting/session), Lemma 1. A machine of reserve, gate, run, stage, settle and publish with any
   number of processes, lost acknowledgements, repeated tries, and the death of any process at any moment. *)
Require Import List Lia Arith Permutation.
Import ListNotations.

(* A token names a run; a content is the digest of its list of files. *)
Definition token := nat.
Definition content := nat.

(* Entries of the ledger are never removed. *)
Inductive entry := Reserve (t : token) (loss : nat) | Charge (t : token) (c : content) | Refusal (t : token).

(* A process before `reserve` has returned; in the gate, where it reads records and has drawn no noise; with its answers
   in memory. *)
Inductive proc := Asking (t : token) (loss : nat)
                | Gate (t : token)
                | Drawn (t : token).

(* The ledger, the private folders (as a history) and the public files last; `procs` do not. *)
Record state := { ledger : list entry; folder : list (token * content); public : list (token * content); used : list token; procs : list proc }.
Definition init := {| ledger := []; folder := []; public := []; used := []; procs := [] |}.

Definition reserved (l : list entry) t := exists x, In (Reserve t x) l.
Definition refused (l : list entry) t := In (Refusal t) l.
Definition has_refusal (l : list entry) (t : token) : bool := existsb (fun e => match e with Refusal u => Nat.eqb t u | _ => false end) l.

(* A reserve counts as spent until a refusal names it; a charge adds nothing to it. *)
Fixpoint sum_from (l all : list entry) : nat := match l with
  | [] => 0 | Reserve t x :: r => (if has_refusal all t then 0 else x) + sum_from r all | _ :: r => sum_from r all end.
Definition spent (l : list entry) := sum_from l l.
Definition tok (p : proc) := match p with Asking t _ => t | Gate t => t | Drawn t => t end.

Section Charge.
Variable LIMIT : nat.

(* One step of one process. `refuse` is possible in the gate alone; `settle` and `publish` may be those of another
   process that finishes the run. *)
Inductive step : state -> state -> Prop :=
| start : forall s t x, ~ In t (used s) ->
   step s {| ledger := ledger s; folder := folder s; public := public s; used := t :: used s; procs := Asking t x :: procs s |}
| commit : forall s t x, In (Asking t x) (procs s) -> ~ reserved (ledger s) t -> spent (ledger s) + x <= LIMIT ->
   step s {| ledger := Reserve t x :: ledger s; folder := folder s; public := public s; used := used s; procs := procs s |}
| retry : forall s t x, In (Asking t x) (procs s) -> reserved (ledger s) t -> step s s
| acknowledged : forall s t x a b, procs s = a ++ Asking t x :: b -> reserved (ledger s) t ->
   step s {| ledger := ledger s; folder := folder s; public := public s; used := used s; procs := a ++ Gate t :: b |}
| refuse : forall s t a b, procs s = a ++ Gate t :: b ->
   step s {| ledger := Refusal t :: ledger s; folder := folder s; public := public s; used := used s; procs := a ++ b |}
| gate_left : forall s t a b, procs s = a ++ Gate t :: b ->
   step s {| ledger := ledger s; folder := folder s; public := public s; used := used s; procs := a ++ Drawn t :: b |}
| stage : forall s t c a b, procs s = a ++ Drawn t :: b ->
   step s {| ledger := ledger s; folder := (t, c) :: folder s; public := public s; used := used s; procs := a ++ b |}
| settle : forall s t c, In (t, c) (folder s) -> (forall d, ~ In (Charge t d) (ledger s)) ->
   step s {| ledger := Charge t c :: ledger s; folder := folder s; public := public s; used := used s; procs := procs s |}
| settle_again : forall s t c d, In (t, c) (folder s) -> In (Charge t d) (ledger s) -> step s s
| publish : forall s t c, In (Charge t c) (ledger s) -> In (t, c) (folder s) ->
   step s {| ledger := ledger s; folder := folder s; public := (t, c) :: public s; used := used s; procs := procs s |}
| crash : forall s p a b, procs s = a ++ p :: b ->
   step s {| ledger := ledger s; folder := folder s; public := public s; used := used s; procs := a ++ b |}.
Inductive reach : state -> Prop := reach_init : reach init | reach_step : forall s s', reach s -> step s s' -> reach s'.

Definition reserve_tokens (l : list entry) := flat_map (fun e => match e with Reserve t _ => [t] | _ => [] end) l.
Definition charge_tokens (l : list entry) := flat_map (fun e => match e with Charge t _ => [t] | _ => [] end) l.
Lemma in_reserve : forall l t, In t (reserve_tokens l) <-> reserved l t.
Proof. intros l t. unfold reserve_tokens. rewrite in_flat_map. split.
  - intros (e & He & H). destruct e; simpl in H; try tauto. destruct H as [->|[]]. exists loss. assumption.
  - intros [x H]. exists (Reserve t x). split; [assumption|left; reflexivity]. Qed.
Lemma in_charge : forall l t, In t (charge_tokens l) <-> exists c, In (Charge t c) l.
Proof. intros l t. unfold charge_tokens. rewrite in_flat_map. split.
  - intros (e & He & H). destruct e; simpl in H; try tauto. destruct H as [->|[]]. exists c. assumption.
  - intros [x H]. exists (Charge t x). split; [assumption|left; reflexivity]. Qed.

(* What holds in every state that can be reached. *)
Record inv (s : state) : Prop := {
  i_used : forall p, In p (procs s) -> In (tok p) (used s);
  i_nodup : NoDup (map tok (procs s));
  i_res_used : forall t, reserved (ledger s) t -> In t (used s);
  i_res_once : NoDup (reserve_tokens (ledger s));
  i_work : forall t, In (Gate t) (procs s) \/ In (Drawn t) (procs s) -> reserved (ledger s) t;
  i_live : forall p, In p (procs s) -> ~ refused (ledger s) (tok p) /\ (forall c, ~ In (tok p, c) (folder s));
  i_folder : forall t c, In (t, c) (folder s) -> reserved (ledger s) t /\ ~ refused (ledger s) t;
  i_folder_one : forall t c d, In (t, c) (folder s) -> In (t, d) (folder s) -> c = d;
  i_charge : forall t c, In (Charge t c) (ledger s) -> In (t, c) (folder s);
  i_charge_once : NoDup (charge_tokens (ledger s));
  i_public : forall t c, In (t, c) (public s) -> In (Charge t c) (ledger s);
  i_ref_used : forall t, refused (ledger s) t -> In t (used s);
  i_limit : spent (ledger s) <= LIMIT }.

Lemma has_refusal_spec : forall l t, has_refusal l t = true <-> refused l t.
Proof. intros l t. unfold has_refusal, refused. rewrite existsb_exists. split.
  - intros (e & H & E). destruct e; try discriminate. apply Nat.eqb_eq in E. subst. assumption.
  - intro H. exists (Refusal t). split; [assumption|apply Nat.eqb_refl]. Qed.
Lemma sum_ext : forall l a a', (forall t, reserved l t -> has_refusal a t = has_refusal a' t) -> sum_from l a = sum_from l a'.
Proof. induction l as [|e l IH]; intros a a' H; [reflexivity|]. assert (sum_from l a = sum_from l a') as E.
  { apply IH. intros t [x Hx]. apply H. exists x. right. assumption. }
  destruct e; simpl; try assumption. rewrite E, (H t); [reflexivity|]. exists loss. left. reflexivity. Qed.
Lemma sum_le : forall l a a', (forall t, has_refusal a t = true -> has_refusal a' t = true) -> sum_from l a' <= sum_from l a.
Proof. induction l as [|e l IH]; intros a a' H; simpl; [lia|]. specialize (IH a a' H). destruct e; try lia.
  destruct (has_refusal a t) eqn:E; [rewrite (H t E); lia|]. destruct (has_refusal a' t); lia. Qed.
Lemma spent_reserve : forall l t x, ~ refused l t -> spent (Reserve t x :: l) = x + spent l.
Proof. intros l t x H. unfold spent. cbn [sum_from]. assert (has_refusal (Reserve t x :: l) t = false) as ->.
  { destruct (has_refusal (Reserve t x :: l) t) eqn:E; [|reflexivity]. apply has_refusal_spec in E. destruct E as [E|E]; [discriminate|contradiction]. }
  f_equal. apply sum_ext. intros. reflexivity. Qed.
Lemma spent_charge : forall l t c, spent (Charge t c :: l) = spent l.
Proof. intros. unfold spent. cbn [sum_from]. apply sum_ext. intros. reflexivity. Qed.
Lemma spent_refusal : forall l t, spent (Refusal t :: l) <= spent l.
Proof. intros. unfold spent. simpl. apply sum_le. intros u H. unfold has_refusal in *. simpl. rewrite H. apply Bool.orb_true_r. Qed.

Lemma in_mid : forall (A : Type) (a b : list A) x y, In y (a ++ b) -> In y (a ++ x :: b).
Proof. intros. apply in_app_or in H. apply in_or_app. destruct H; [left|right; right]; assumption. Qed.
Lemma mid_cases : forall (A : Type) (a b : list A) x y, In y (a ++ x :: b) -> y = x \/ In y (a ++ b).
Proof. intros. apply in_app_or in H. destruct H as [H|[H|H]]; [right; apply in_or_app; left; assumption|left; auto|right; apply in_or_app; right; assumption]. Qed.

Ltac refd H := let E := fresh in destruct H as [E|H]; [discriminate E|].
Theorem invariant : forall s, reach s -> inv s.
Proof. induction 1 as [|s s' Hr I Hs].
  { split; simpl; try (intros; tauto); try constructor; try (intros ? [? []]); try (intros ? []); try (intros; destruct H; contradiction). apply Nat.le_0_l. }
  destruct I. destruct Hs.
  - split; simpl; auto.
    + intros p [<-|Hp]; [left; reflexivity|right; auto].
    + constructor; [|assumption]. intro Hi. apply in_map_iff in Hi. destruct Hi as (p & E & Hp). simpl in E. apply H. rewrite <- E. auto.
    + intros u [[E|E]|[E|E]]; try discriminate; auto.
    + intros p [<-|Hp]; [|auto]. simpl. split; [intro; apply H; auto|]. intros c Hc. apply H. apply i_res_used0. apply (i_folder0 _ _ Hc).
  - assert (NR : ~ refused (ledger s) t) by (apply (i_live0 _ H)). split; simpl; auto.
    + intros u [y [E|E]]; [injection E as -> ->; apply (i_used0 _ H)|apply i_res_used0; exists y; assumption].
    + constructor; [rewrite in_reserve; assumption|assumption].
    + intros u Hu. destruct (i_work0 u Hu) as [y Hy]. exists y. right. assumption.
    + intros p Hp. destruct (i_live0 p Hp) as [A B]. split; [|assumption]. intro Q. destruct Q as [E|Q]; [discriminate|contradiction].
    + intros u c Hc. destruct (i_folder0 u c Hc) as [[y Hy] B]. split; [exists y; right; assumption|]. intros [E|Q]; [discriminate|contradiction].
    + intros u c [E|Hc]; [discriminate|auto].
    + intros u [E|Q]; [discriminate|auto].
    + rewrite spent_reserve by assumption. lia.
  - split; auto.
  - rewrite H in *. split; simpl; auto.
    + intros p Hp. apply mid_cases in Hp. destruct Hp as [->|Hp]; [apply (i_used0 (Asking t x)); apply in_elt|apply i_used0; apply in_mid; assumption].
    + rewrite map_app in *. simpl in *. assumption.
    + intros u Hu. destruct Hu as [Hu|Hu]; apply mid_cases in Hu; destruct Hu as [E|Hu]; try discriminate; try (injection E as ->; assumption);
        apply i_work0; [left|right]; apply in_mid; assumption.
    + intros p Hp. apply mid_cases in Hp. destruct Hp as [->|Hp]; [apply (i_live0 (Asking t x)); apply in_elt|apply i_live0; apply in_mid; assumption].
  - rewrite H in *. assert (NF : forall c, ~ In (t, c) (folder s)) by (apply (i_live0 (Gate t)); apply in_elt).
    assert (NT : ~ In t (map tok (a ++ b))).
    { rewrite map_app in *. simpl in i_nodup0. apply NoDup_remove_2 in i_nodup0. assumption. }
    split; simpl; auto.
    + intros p Hp. apply i_used0. apply in_mid. assumption.
    + rewrite map_app in *. simpl in i_nodup0. apply NoDup_remove_1 in i_nodup0. assumption.
    + intros u [y [E|E]]; [discriminate|apply i_res_used0; exists y; assumption].
    + intros u Hu. assert (reserved (ledger s) u) as [y Hy] by (apply i_work0; destruct Hu; [left|right]; apply in_mid; assumption). exists y. right. assumption.
    + intros p Hp. destruct (i_live0 p (in_mid _ _ _ _ _ Hp)) as [A B]. split; [|assumption]. intros [E|Q]; [|contradiction].
      injection E as E. apply NT. rewrite E. apply in_map. assumption.
    + intros u c Hc. destruct (i_folder0 u c Hc) as [[y Hy] B]. split; [exists y; right; assumption|]. intros [E|Q]; [|contradiction].
      injection E as ->. apply (NF c). assumption.
    + intros u c [E|Hc]; [discriminate|auto].
    + intros u [E|Q]; [injection E as ->; apply (i_used0 (Gate u)); apply in_elt|auto].
    + pose proof (spent_refusal (ledger s) t). lia.
  - rewrite H in *. split; simpl; auto.
    + intros p Hp. apply mid_cases in Hp. destruct Hp as [->|Hp]; [apply (i_used0 (Gate t)); apply in_elt|apply i_used0; apply in_mid; assumption].
    + rewrite map_app in *. simpl in *. assumption.
    + intros u Hu. destruct Hu as [Hu|Hu]; apply mid_cases in Hu; destruct Hu as [E|Hu]; try discriminate;
        try (injection E as ->; apply i_work0; left; apply in_elt); apply i_work0; [left|right]; apply in_mid; assumption.
    + intros p Hp. apply mid_cases in Hp. destruct Hp as [->|Hp]; [apply (i_live0 (Gate t)); apply in_elt|apply i_live0; apply in_mid; assumption].
  - rewrite H in *.
    assert (NT : ~ In t (map tok (a ++ b))).
    { rewrite map_app in *. simpl in i_nodup0. apply NoDup_remove_2 in i_nodup0. assumption. }
    assert (NF : forall d, ~ In (t, d) (folder s)) by (apply (i_live0 (Drawn t)); apply in_elt).
    split; simpl; auto.
    + intros p Hp. apply i_used0. apply in_mid. assumption.
    + rewrite map_app in *. simpl in i_nodup0. apply NoDup_remove_1 in i_nodup0. assumption.
    + intros u Hu. apply i_work0. destruct Hu; [left|right]; apply in_mid; assumption.
    + intros p Hp. destruct (i_live0 p (in_mid _ _ _ _ _ Hp)) as [A B]. split; [assumption|]. intros d [E|Q]; [|apply (B d); assumption].
      injection E as E _. apply NT. rewrite E. apply in_map. assumption.
    + intros u d [E|Hd]; [|apply (i_folder0 u d Hd)]. injection E as -> ->. split; [apply i_work0; right; apply in_elt|apply (i_live0 (Drawn u)); apply in_elt].
    + intros u d e [E|Hd] [E'|He].
      * congruence. * injection E as -> ->. exfalso. apply (NF e). assumption. * injection E' as -> ->. exfalso. apply (NF d). assumption. * eauto.
  - split; simpl; auto.
    + intros u [y [E|E]]; [discriminate|apply i_res_used0; exists y; assumption].
    + intros u Hu. destruct (i_work0 u Hu) as [y Hy]. exists y. right. assumption.
    + intros p Hp. destruct (i_live0 p Hp) as [A B]. split; [|assumption]. intros [E|Q]; [discriminate|contradiction].
    + intros u d Hd. destruct (i_folder0 u d Hd) as [[y Hy] B]. split; [exists y; right; assumption|]. intros [E|Q]; [discriminate|contradiction].
    + intros u d [E|Hd]; [injection E as -> ->; assumption|auto].
    + constructor; [|assumption]. rewrite in_charge. intros [d Hd]. apply (H0 d). assumption.
    + intros u [E|Q]; [discriminate|auto].
    + rewrite spent_charge. assumption.
  - split; auto.
  - split; simpl; auto. intros u d [E|Hd]; [injection E as -> ->; assumption|auto].
  - rewrite H in *. split; simpl; auto.
    + intros q Hq. apply i_used0. apply in_mid. assumption.
    + rewrite map_app in *. simpl in i_nodup0. apply NoDup_remove_1 in i_nodup0. assumption.
    + intros u Hu. apply i_work0. destruct Hu; [left|right]; apply in_mid; assumption.
    + intros q Hq. apply i_live0. apply in_mid. assumption. Qed.

(* charge.md, Lemma 1: what is public has a charge of the same content, a reserve, no refusal, and no other content. *)
Theorem published_is_charged : forall s, reach s -> forall t c, In (t, c) (public s) ->
  In (Charge t c) (ledger s) /\ (exists loss, In (Reserve t loss) (ledger s)) /\ ~ refused (ledger s) t /\ (forall d, In (t, d) (public s) -> d = c).
Proof. intros s Hr t c Hp. destruct (invariant s Hr). pose proof (i_public0 _ _ Hp) as Hc. pose proof (i_charge0 _ _ Hc) as Hf.
  destruct (i_folder0 _ _ Hf) as [R N]. split; [assumption|split; [exact R|split; [assumption|]]].
  intros d Hd. apply (i_folder_one0 t d c); auto. Qed.

(* A process that reads records or has answers in memory has a reserve that counts. *)
Theorem reading_is_counted : forall s, reach s -> forall t, In (Gate t) (procs s) \/ In (Drawn t) (procs s) ->
  reserved (ledger s) t /\ ~ refused (ledger s) t.
Proof. intros s Hr t H. destruct (invariant s Hr). split; [auto|]. destruct H as [H|H]; apply (i_live0 _ H). Qed.

(* charge.md, Lemma 3; ledger/postgres.md, Lemma 3: one reserve and at most one settlement a token, whatever was tried
   again. *)
Theorem counted_once : forall s, reach s -> NoDup (reserve_tokens (ledger s)) /\ NoDup (charge_tokens (ledger s)) /\
  forall t c, In (Charge t c) (ledger s) -> ~ refused (ledger s) t.
Proof. intros s Hr. destruct (invariant s Hr). repeat split; try assumption. intros t c H. apply (i_folder0 t c). auto. Qed.

(* ledger/postgres.md, Lemma 2: no number of processes together passes the limit. *)
Theorem within_limit : forall s, reach s -> spent (ledger s) <= LIMIT.
Proof. intros s Hr. destruct (invariant s Hr). assumption. Qed.

(* The sum rises in `commit` alone and falls in a refusal of the gate alone; finishing a run adds nothing. *)
Theorem sum_moves : forall s s', step s s' -> spent (ledger s') = spent (ledger s) \/
  (exists t x, ledger s' = Reserve t x :: ledger s) \/ (exists t, ledger s' = Refusal t :: ledger s /\ In (Gate t) (procs s)).
Proof. intros s s' H. destruct H; simpl; auto.
  - right. left. exists t, x. reflexivity.
  - right. right. exists t. split; [reflexivity|]. rewrite H. apply in_elt.
  - left. apply spent_charge. Qed.

Theorem ledger_grows : forall s s', step s s' -> incl (ledger s) (ledger s').
Proof. intros s s' H e He. destruct H; simpl; auto. Qed.
Inductive steps : state -> state -> Prop := steps_0 : forall s, steps s s | steps_n : forall s u v, steps s u -> step u v -> steps s v.

(* What is public stays charged in every later state. *)
Theorem publication_stays_charged : forall s, reach s -> forall s', steps s s' -> forall t c, In (t, c) (public s) ->
  (exists loss, In (Reserve t loss) (ledger s')) /\ ~ refused (ledger s') t.
Proof. intros s Hr s' Hs t c Hp.
  assert (reach s' /\ In (Charge t c) (ledger s')) as [R C].
  { induction Hs as [|s u v H IH K]; [split; [assumption|destruct (invariant _ Hr); auto]|]. destruct (IH Hr Hp) as [R C].
    split; [eapply reach_step; eassumption|eapply ledger_grows; eassumption]. }
  destruct (invariant s' R). destruct (i_folder0 t c (i_charge0 _ _ C)). split; assumption. Qed.

(* A run that still works, or died before its list of files was complete, has published nothing. *)
Theorem unstaged_unpublished : forall s, reach s -> forall p, In p (procs s) -> forall c, ~ In (tok p, c) (public s).
Proof. intros s Hr p Hp c Hc. destruct (invariant s Hr). apply (proj2 (i_live0 p Hp) c). auto. Qed.
End Charge.

(* session/store.md and session/postgres.md, Lemma 1: an answer leaves after COMMIT; after a lost acknowledgement the
   entry is looked for under the head. An entry is (charge, answer), latest first. *)
Section Store.
Variable U : nat.
Record store := { entries : list (nat * nat);
                  waiting : option (list (nat * nat) * (nat * nat));
                  answered : list (nat * nat) }.
Fixpoint charges (l : list (nat * nat)) := match l with [] => 0 | e :: r => fst e + charges r end.

(* The process may die at any moment; the next one reads the entries. *)
Inductive store_step : store -> store -> Prop :=
| ask : forall s k a, waiting s = None -> k <= U - charges (entries s) ->
    store_step s {| entries := entries s; waiting := Some (entries s, (k, a)); answered := answered s |}
| write : forall s h e, waiting s = Some (h, e) -> entries s = h ->
    store_step s {| entries := e :: entries s; waiting := waiting s; answered := answered s |}
| found : forall s h e, waiting s = Some (h, e) -> entries s = e :: h -> store_step s s
| answer : forall s h e, waiting s = Some (h, e) -> entries s = e :: h ->
    store_step s {| entries := entries s; waiting := None; answered := e :: answered s |}
| die : forall s, store_step s {| entries := entries s; waiting := None; answered := answered s |}.
Inductive store_reach : store -> Prop := sr0 : store_reach {| entries := []; waiting := None; answered := [] |} | srn : forall s s', store_reach s -> store_step s s' -> store_reach s'.
Definition store_invariant (s : store) := charges (entries s) <= U /\ (exists lost, Permutation (entries s) (answered s ++ lost)) /\
  match waiting s with None => True | Some (h, e) => (entries s = h \/ entries s = e :: h) /\ fst e + charges h <= U /\
     exists lost, Permutation h (answered s ++ lost) end.
Lemma store_invariant_holds : forall s, store_reach s -> store_invariant s.
Proof. induction 1 as [|s s' Hr I Hs]; [repeat split; simpl; [lia|exists []; constructor]|].
  destruct I as (A & [lost P] & W). destruct Hs; unfold store_invariant in *; simpl.
  - split; [assumption|split; [exists lost; assumption|]]. split; [left; reflexivity|]. split; [simpl; lia|exists lost; assumption].
  - rewrite H in *. destruct W as (W1 & W2 & W3). subst h. split; [assumption|]. split.
    + exists (e :: lost). rewrite P. apply Permutation_middle.
    + split; [right; reflexivity|split; assumption].
  - rewrite H in *. split; [assumption|split; [exists lost; assumption|assumption]].
  - rewrite H in *. destruct W as (W1 & W2 & [l2 W3]). split; [assumption|]. split; [|trivial]. exists l2. rewrite H0, W3. reflexivity.
  - split; [assumption|split; [exists lost; assumption|trivial]]. Qed.

(* Every answer that left has its entry, as often as it left, and the purse is never overdrawn. *)
Theorem answers_are_charged : forall s, store_reach s -> charges (entries s) <= U /\ charges (answered s) <= charges (entries s) /\
  exists lost, Permutation (entries s) (answered s ++ lost).
Proof. intros s Hr. destruct (store_invariant_holds s Hr) as (A & [lost P] & _). split; [assumption|]. split; [|exists lost; assumption].
  assert (E : forall l l', Permutation l l' -> charges l = charges l') by (induction 1; simpl; lia).
  assert (F : forall a b, charges (a ++ b) = charges a + charges b) by (induction a; simpl; intros; [reflexivity|rewrite IHa; lia]).
  rewrite (E _ _ P), F. lia. Qed.
End Store.
