(* Statements as functions that run, each with the theorem that ties it to its statement. check.py extracts them to OCaml
   (extracted/), and tests/proofs compares them with the code. *)
Require Import ZArith List Lia Arith Bool.
Import ListNotations.
From Proofs Require Import sensitivity sparse_sums race_sketch distance_sketches second_moments bound_contributions vote_counts vote_distance top_k privacy_filter ledger.

Open Scope Z_scope.

(* vote_distance.v, exact_distance: the fewest steps as a formula, of the list of differences of counts. *)
Definition zs (l : list Z) := fold_right Z.add 0 l.
Definition zmax (l : list Z) := fold_right Z.max 0 l.
Definition enough (c : Z) (l : list Z) := Z.max (zmax l) ((zs l + c - 1) / c).
Definition fewest_steps (c : Z) (l : list Z) := enough c (map (fun x => Z.max 0 x) l) + enough c (map (fun x => Z.max 0 (- x)) l).
Lemma enough_fits : forall m c a r (f : nat -> Z), (1 <= c)%nat -> (forall i, Z.of_nat (r i) = f i) ->
  (fits m c a r <-> enough (Z.of_nat c) (map f (seq 0 m)) <= Z.of_nat a).
Proof. intros m c a r f Hc E. unfold fits, enough.
  assert (S : forall l, Z.of_nat (tot r l) = zs (map f l)).
  { induction l as [|i l IH]; [reflexivity|]. unfold tot in *. simpl. rewrite Nat2Z.inj_add, IH, E. reflexivity. }
  assert (M : forall l, (forall i, In i l -> (r i <= a)%nat) <-> zmax (map f l) <= Z.of_nat a).
  { induction l as [|i l IH]; simpl; [split; intros; [lia|tauto]|]. rewrite Z.max_lub_iff, <- IH, <- E. split.
    - intro H. split; [specialize (H i (or_introl eq_refl)); lia|intros; apply H; auto].
    - intros [H1 H2] j [<-|Hj]; [lia|auto]. }
  rewrite Z.max_lub_iff, <- M, <- S.
  assert (Q : (tot r (seq 0 m) <= c * a)%nat <-> (Z.of_nat (tot r (seq 0 m)) + Z.of_nat c - 1) / Z.of_nat c <= Z.of_nat a).
  { set (t := Z.of_nat (tot r (seq 0 m))). assert ((tot r (seq 0 m) <= c * a)%nat <-> t <= Z.of_nat c * Z.of_nat a) as -> by (unfold t; nia).
    pose proof (Z.div_mod (t + Z.of_nat c - 1) (Z.of_nat c) ltac:(lia)). pose proof (Z.mod_pos_bound (t + Z.of_nat c - 1) (Z.of_nat c) ltac:(lia)). split; intro; nia. }
  rewrite Q. split; intros [A B]; split; auto; intros i Hi; apply A; [apply in_seq in Hi; lia|apply in_seq; lia]. Qed.

(* d steps lead from h to h' exactly where the formula is at most d. *)
Theorem fewest_steps_exact : forall m c d h h', (1 <= c)%nat -> (walk m c d h h' <-> fewest_steps (Z.of_nat c) (map (fun i => h' i - h i) (seq 0 m)) <= Z.of_nat d).
Proof. intros m c d h h' Hc. rewrite exact_distance. unfold fewest_steps. rewrite !map_map.
  pose proof (fun a => enough_fits m c a (rise h h') (fun i => Z.max 0 (h' i - h i)) Hc ltac:(intro; unfold rise; lia)) as A.
  pose proof (fun a => enough_fits m c a (rise h' h) (fun i => Z.max 0 (- (h' i - h i))) Hc ltac:(intro; unfold rise; lia)) as B.
  assert (P : forall l c0, 0 < c0 -> 0 <= enough c0 l).
  { intros l c0 H. unfold enough. assert (0 <= zmax l) by (induction l; simpl; lia). lia. }
  set (x := enough (Z.of_nat c) (map (fun i => Z.max 0 (h' i - h i)) (seq 0 m))) in *.
  set (y := enough (Z.of_nat c) (map (fun i => Z.max 0 (- (h' i - h i))) (seq 0 m))) in *.
  assert (0 <= x) by (apply P; lia). assert (0 <= y) by (apply P; lia). split.
  - intros (a & b & <- & Fa & Fb). apply A in Fa. apply B in Fb. lia.
  - intro H1. exists (Z.to_nat x), (d - Z.to_nat x)%nat. split; [lia|]. split; [apply A|apply B]; lia. Qed.

(* Whole sketches as lists of cells; records are numbered 0 .. n - 1. *)
Definition cells_of (k : nat) (v : vec) := map v (seq 0 k).
Definition race_cells (Rep W L : nat) (w : Z) (label : nat -> nat) (hash : nat -> nat -> nat) (n : nat) :=
  cells_of (k Rep W L) (total nat (race Rep W L w nat label hash) (seq 0 n)).

(* Leaf floor((x - lower) 2^H / span) of distance_tree.md and moment_tree.md. *)
Definition leaf_of (lower span : Z) (H : nat) (x : Z) : nat := Z.to_nat ((x - lower) * 2 ^ Z.of_nat H / span).
Definition tree_cells (H d L : nat) (u : nat -> Z) (lower span : nat -> Z) (label : nat -> nat) (x : nat -> nat -> Z) (n : nat) :=
  cells_of (k (d * S H) (2 ^ H) L) (total nat (tree H d L u nat label (fun r j => leaf_of (lower j) (span j) H (x r j))) (seq 0 n)).
Definition threshold_cells (M L : nat) (w : Z) (label : nat -> nat) (sign : nat -> nat -> bool) (n : nat) :=
  cells_of (k M 1 L) (total nat (threshold M L w nat label sign) (seq 0 n)).

(* The first integer of node i of level l; block (column, level, order) of the moment tree. *)
Definition first_of (lower span : Z) (l : nat) (i : Z) := lower + - ((- (i * span)) / 2 ^ Z.of_nat l).
Definition moment_cells (H d L p : nat) (u : nat -> nat -> nat -> Z) (lower span : nat -> Z) (label : nat -> nat) (x : nat -> nat -> Z) (n : nat) :=
  let col b := (b / (H * S p))%nat in let lev b := S ((b / S p) mod H)%nat in let ord b := (b mod S p)%nat in
  let at_ r b := (leaf_of (lower (col b)) (span (col b)) H (x r (col b)) / 2 ^ (H - lev b))%nat in
  let val r b := let i := Z.of_nat (at_ r b) in let a := first_of (lower (col b)) (span (col b)) (lev b) i in let z := first_of (lower (col b)) (span (col b)) (lev b) (i + 1) in
                 u (col b) (lev b) (ord b) * (2 * x r (col b) - (2 * a + (z - a) - 1)) ^ Z.of_nat (ord b) in
  cells_of (k (d * (H * S p)) (2 ^ H) L) (total nat (feat (d * (H * S p)) (2 ^ H) L 0 nat label at_ val) (seq 0 n)).

(* Order statistics and top-k sets as tests that can be run. *)
Definition kthb (m : nat) (h : nat -> Z) (j : nat) (v : Z) := (Nat.leb j (at_least m h v) && Nat.ltb (at_least m h (v + 1)) j)%bool.
Lemma kthb_ok : forall m h j v, kthb m h j v = true <-> kth m h j v.
Proof. intros. unfold kthb, kth. rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt. tauto. Qed.
Fixpoint nodupb (l : list nat) : bool := match l with [] => true | x :: r => negb (existsb (Nat.eqb x) r) && nodupb r end.
Definition memb (x : nat) l := existsb (Nat.eqb x) l.
Definition topb (m : nat) (h : nat -> Z) (k : nat) (T : list nat) :=
  nodupb T && Nat.eqb (length T) k && forallb (fun x => Nat.ltb x m) T && forallb (fun x => forallb (fun y => memb y T || (h y <=? h x)) (seq 0 m)) T.
Lemma memb_ok : forall x l, memb x l = true <-> In x l.
Proof. intros. unfold memb. rewrite existsb_exists. split; [intros (y & H & E); apply Nat.eqb_eq in E; subst; assumption|intro; exists x; split; [assumption|apply Nat.eqb_refl]]. Qed.
Lemma nodupb_ok : forall l, nodupb l = true <-> NoDup l.
Proof. induction l as [|x r IH]; simpl; [split; [constructor|reflexivity]|]. rewrite andb_true_iff, IH, NoDup_cons_iff, negb_true_iff.
  pose proof (memb_ok x r) as M. unfold memb in M. destruct (existsb (Nat.eqb x) r); split; intros [A B]; split; auto; try congruence; try (exfalso; tauto). intro. apply M in H. discriminate. Qed.
Lemma topb_ok : forall m h k T, topb m h k T = true -> top m h k T.
Proof. intros m h k T. unfold topb, top. rewrite !andb_true_iff, nodupb_ok, Nat.eqb_eq, !forallb_forall. intros [[[A B] C] D].
  split; [assumption|split; [assumption|split]]. { intros x Hx. apply Nat.ltb_lt. auto. }
  intros x y Hx Hy Hm. specialize (D x Hx). rewrite forallb_forall in D. specialize (D y ltac:(apply in_seq; lia)).
  rewrite orb_true_iff, memb_ok in D. destruct D; [contradiction|apply Z.leb_le; assumption]. Qed.

(* A purse of U units after prices in the order asked, by the rule of privacy_filter.v (Section Drop). *)
Definition purse_after (U : nat) (prices : list nat) := purse nat nat U (fun _ p => nth (length p) prices 0%nat) 0%nat (repeat 0%nat (length prices)).

Open Scope nat_scope.

(* The machine of ledger.v as a function of the name of a step; a step that is not allowed has no next state. *)
Inductive label := LStart (t x : nat) | LCommit (t x : nat) | LRetry (t x : nat) | LAck (t : nat) | LRefuse (t : nat) | LLeft (t : nat)
  | LStage (t c : nat) | LSettle (t c : nat) | LAgain (t c : nat) | LPublish (t c : nat) | LCrash (t : nat).
Fixpoint cut (f : proc -> bool) (l : list proc) : option (list proc * proc * list proc) := match l with [] => None
  | p :: r => if f p then Some ([], p, r) else match cut f r with None => None | Some (a, q, b) => Some (p :: a, q, b) end end.
Lemma cut_ok : forall f l a q b, cut f l = Some (a, q, b) -> l = a ++ q :: b /\ f q = true.
Proof. induction l as [|p r IH]; simpl; intros a q b H; [discriminate|]. destruct (f p) eqn:E; [injection H as <- <- <-; auto|].
  destruct (cut f r) as [[[a' q'] b']|]; [|discriminate]. injection H as <- <- <-. destruct (IH _ _ _ eq_refl) as [-> G]. auto. Qed.
Definition is_ask t p := match p with Asking u _ => Nat.eqb u t | _ => false end.
Definition is_ask2 t x p := match p with Asking u y => Nat.eqb u t && Nat.eqb y x | _ => false end.
Definition is_gate t p := match p with Gate u => Nat.eqb u t | _ => false end.
Definition is_drawn t p := match p with Drawn u => Nat.eqb u t | _ => false end.
Definition is_tok t p := Nat.eqb (tok p) t.
Definition reservedb (l : list entry) t := existsb (fun e => match e with Reserve u _ => Nat.eqb t u | _ => false end) l.
Definition chargedb (l : list entry) t := existsb (fun e => match e with Charge u _ => Nat.eqb t u | _ => false end) l.
Definition charged_as (l : list entry) t c := existsb (fun e => match e with Charge u d => Nat.eqb t u && Nat.eqb c d | _ => false end) l.
Definition in_folder (s : state) t c := existsb (fun e => Nat.eqb (fst e) t && Nat.eqb (snd e) c) (folder s).
Definition with_procs (s : state) p := {| ledger := ledger s; folder := folder s; public := public s; used := used s; procs := p |}.
Definition with_ledger (s : state) e := {| ledger := e :: ledger s; folder := folder s; public := public s; used := used s; procs := procs s |}.
Definition exec (LIMIT : nat) (l : label) (s : state) : option state := match l with
  | LStart t x => if memb t (used s) then None else Some {| ledger := ledger s; folder := folder s; public := public s; used := t :: used s; procs := Asking t x :: procs s |}
  | LCommit t x => if existsb (is_ask2 t x) (procs s) && negb (reservedb (ledger s) t) && (spent (ledger s) + x <=? LIMIT) then Some (with_ledger s (Reserve t x)) else None
  | LRetry t x => if existsb (is_ask2 t x) (procs s) && reservedb (ledger s) t then Some s else None
  | LAck t => if reservedb (ledger s) t then match cut (is_ask t) (procs s) with Some (a, _, b) => Some (with_procs s (a ++ Gate t :: b)) | None => None end else None
  | LRefuse t => match cut (is_gate t) (procs s) with Some (a, _, b) => Some {| ledger := Refusal t :: ledger s; folder := folder s; public := public s; used := used s; procs := a ++ b |} | None => None end
  | LLeft t => match cut (is_gate t) (procs s) with Some (a, _, b) => Some (with_procs s (a ++ Drawn t :: b)) | None => None end
  | LStage t c => match cut (is_drawn t) (procs s) with Some (a, _, b) => Some {| ledger := ledger s; folder := (t, c) :: folder s; public := public s; used := used s; procs := a ++ b |} | None => None end
  | LSettle t c => if in_folder s t c && negb (chargedb (ledger s) t) then Some (with_ledger s (Charge t c)) else None
  | LAgain t c => if in_folder s t c && chargedb (ledger s) t then Some s else None
  | LPublish t c => if charged_as (ledger s) t c && in_folder s t c then Some {| ledger := ledger s; folder := folder s; public := (t, c) :: public s; used := used s; procs := procs s |} else None
  | LCrash t => match cut (is_tok t) (procs s) with Some (a, _, b) => Some (with_procs s (a ++ b)) | None => None end end.
Lemma reservedb_ok : forall l t, reservedb l t = true <-> reserved l t.
Proof. intros. unfold reservedb, reserved. rewrite existsb_exists. split.
  - intros (e & H & E). destruct e; try discriminate. apply Nat.eqb_eq in E. subst. eauto.
  - intros [x H]. exists (Reserve t x). split; [assumption|apply Nat.eqb_refl]. Qed.
Lemma chargedb_ok : forall l t, chargedb l t = true <-> exists d, In (Charge t d) l.
Proof. intros. unfold chargedb. rewrite existsb_exists. split.
  - intros (e & H & E). destruct e; try discriminate. apply Nat.eqb_eq in E. subst. eauto.
  - intros [x H]. exists (Charge t x). split; [assumption|apply Nat.eqb_refl]. Qed.
Lemma charged_as_ok : forall l t c, charged_as l t c = true -> In (Charge t c) l.
Proof. intros l t c H. unfold charged_as in H. apply existsb_exists in H. destruct H as (e & H & E). destruct e; try discriminate. apply andb_true_iff in E. destruct E as [E1 E2].
  apply Nat.eqb_eq in E1. apply Nat.eqb_eq in E2. subst. assumption. Qed.
Lemma in_folder_ok : forall s t c, in_folder s t c = true -> In (t, c) (folder s).
Proof. intros s t c H. apply existsb_exists in H. destruct H as ([u d] & H & E). apply andb_true_iff in E. destruct E as [E1 E2]. apply Nat.eqb_eq in E1. apply Nat.eqb_eq in E2. simpl in *. subst. assumption. Qed.
Lemma ask2_ok : forall t x l, existsb (is_ask2 t x) l = true -> In (Asking t x) l.
Proof. intros t x l H. apply existsb_exists in H. destruct H as (p & H & E). destruct p; try discriminate. apply andb_true_iff in E. destruct E as [E1 E2].
  apply Nat.eqb_eq in E1. apply Nat.eqb_eq in E2. subst. assumption. Qed.

(* Every step that the function takes is a step of the machine. *)
Theorem exec_sound : forall LIMIT l s s', exec LIMIT l s = Some s' -> step LIMIT s s'.
Proof. intros LIMIT l s s' H. destruct l; simpl in H.
  - destruct (memb t (used s)) eqn:E; [discriminate|]. injection H as <-. constructor. intro G. apply memb_ok in G. congruence.
  - destruct (existsb (is_ask2 t x) (procs s)) eqn:A; [|discriminate]. destruct (reservedb (ledger s) t) eqn:B; [discriminate|]. simpl in H.
    destruct (Nat.leb_spec (spent (ledger s) + x) LIMIT); [|discriminate]. injection H as <-. apply commit; [apply ask2_ok; assumption|intro G; apply reservedb_ok in G; congruence|assumption].
  - destruct (existsb (is_ask2 t x) (procs s)) eqn:A; [|discriminate]. destruct (reservedb (ledger s) t) eqn:B; [|discriminate]. injection H as <-.
    apply retry with t x; [apply ask2_ok; assumption|apply reservedb_ok; assumption].
  - destruct (reservedb (ledger s) t) eqn:B; [|discriminate]. destruct (cut (is_ask t) (procs s)) as [[[a q] b]|] eqn:C; [|discriminate]. injection H as <-.
    apply cut_ok in C. destruct C as [C D]. destruct q; try discriminate. apply Nat.eqb_eq in D. subst. eapply acknowledged; [exact C|apply reservedb_ok; assumption].
  - destruct (cut (is_gate t) (procs s)) as [[[a q] b]|] eqn:C; [|discriminate]. injection H as <-. apply cut_ok in C. destruct C as [C D]. destruct q; try discriminate. apply Nat.eqb_eq in D. subst. apply refuse. assumption.
  - destruct (cut (is_gate t) (procs s)) as [[[a q] b]|] eqn:C; [|discriminate]. injection H as <-. apply cut_ok in C. destruct C as [C D]. destruct q; try discriminate. apply Nat.eqb_eq in D. subst. apply gate_left. assumption.
  - destruct (cut (is_drawn t) (procs s)) as [[[a q] b]|] eqn:C; [|discriminate]. injection H as <-. apply cut_ok in C. destruct C as [C D]. destruct q; try discriminate. apply Nat.eqb_eq in D. subst. apply stage. assumption.
  - destruct (in_folder s t c) eqn:A; [|discriminate]. destruct (chargedb (ledger s) t) eqn:B; [discriminate|]. injection H as <-. apply settle; [apply in_folder_ok; assumption|].
    intros d G. assert (chargedb (ledger s) t = true) by (apply chargedb_ok; eauto). congruence.
  - destruct (in_folder s t c) eqn:A; [|discriminate]. destruct (chargedb (ledger s) t) eqn:B; [|discriminate]. injection H as <-. apply chargedb_ok in B. destruct B as [d B]. eapply settle_again; [apply in_folder_ok; exact A|exact B].
  - destruct (charged_as (ledger s) t c) eqn:A; [|discriminate]. destruct (in_folder s t c) eqn:B; [|discriminate]. injection H as <-. apply publish; [apply charged_as_ok; assumption|apply in_folder_ok; assumption].
  - destruct (cut (is_tok t) (procs s)) as [[[a q] b]|] eqn:C; [|discriminate]. injection H as <-. apply cut_ok in C. destruct C as [C D]. eapply crash. exact C. Qed.

(* second_moments.md: the products z_i z_j of one record, i <= j < n, by j and then by i. *)
Open Scope Z_scope.
Definition products (n : nat) (z : nat -> Z) : list Z := flat_map (fun j => map (fun i => z i * z j) (seq 0 (S j))) (seq 0 n).
Lemma zs_app : forall a b, zs (a ++ b) = zs a + zs b.
Proof. induction a as [|x a IH]; intro b; simpl; [reflexivity|]. unfold zs in *. rewrite IH. lia. Qed.
Lemma zs_upto : forall g n, zs (map g (seq 0 n)) = upto g n.
Proof. intros g n. induction n as [|n IH]; [reflexivity|]. rewrite seq_S, map_app, zs_app, IH. simpl. lia. Qed.
Theorem products_sum : forall f n z, zs (map f (products n z)) = tri (fun i j => f (z i * z j)) n.
Proof. intros f n z. induction n as [|n IH]; [reflexivity|]. unfold products in *. rewrite seq_S, flat_map_app, map_app, zs_app, IH. cbn [Nat.add flat_map tri].
  rewrite app_nil_r, map_map, zs_upto. reflexivity. Qed.

(* bound_contributions.v with ranks that are integers: the k least rows of every person. *)
Definition kept_rows (k : nat) (rows : list (nat * Z)) : list (nat * Z) := kept nat Z Nat.eq_dec Z.leb k rows.

(* The machine of a session's store (ledger.v, Section Store) as a function of the name of a step. *)
Open Scope nat_scope.
Inductive store_label := Ask (price answer : nat) | Write | Found | Answer | Die.
Definition pair_eq (e f : nat * nat) := Nat.eqb (fst e) (fst f) && Nat.eqb (snd e) (snd f).
Fixpoint list_eq (l m : list (nat * nat)) : bool := match l, m with [], [] => true | e :: l', f :: m' => pair_eq e f && list_eq l' m' | _, _ => false end.
Lemma list_eq_ok : forall l m, list_eq l m = true -> l = m.
Proof. induction l as [|e l IH]; destruct m as [|f m]; simpl; intro H; try discriminate; [reflexivity|]. apply andb_true_iff in H. destruct H as [A B].
  unfold pair_eq in A. apply andb_true_iff in A. destruct A as [C D]. apply Nat.eqb_eq in C, D. rewrite (IH _ B). destruct e, f; simpl in *; subst; reflexivity. Qed.
Definition store_start : store := {| entries := []; waiting := None; answered := [] |}.
Definition store_exec (U : nat) (l : store_label) (s : store) : option store := match l with
  | Ask x a => match waiting s with None => if x <=? U - charges (entries s) then Some {| entries := entries s; waiting := Some (entries s, (x, a)); answered := answered s |} else None | _ => None end
  | Write => match waiting s with Some (h, e) => if list_eq (entries s) h then Some {| entries := e :: entries s; waiting := waiting s; answered := answered s |} else None | None => None end
  | Found => match waiting s with Some (h, e) => if list_eq (entries s) (e :: h) then Some s else None | None => None end
  | Answer => match waiting s with Some (h, e) => if list_eq (entries s) (e :: h) then Some {| entries := entries s; waiting := None; answered := e :: answered s |} else None | None => None end
  | Die => Some {| entries := entries s; waiting := None; answered := answered s |} end.
Theorem store_exec_sound : forall U l s s', store_exec U l s = Some s' -> store_step U s s'.
Proof. intros U l s s'. destruct l; cbn [store_exec]; intro H.
  - destruct (waiting s) eqn:W; [discriminate|]. destruct (price <=? U - charges (entries s)) eqn:E; [|discriminate]. injection H as <-. apply ask; [assumption|apply Nat.leb_le; assumption].
  - destruct (waiting s) as [[h e]|] eqn:W; [|discriminate]. destruct (list_eq (entries s) h) eqn:E; [|discriminate]. injection H as <-. rewrite <- W. eapply write; [exact W|apply list_eq_ok; assumption].
  - destruct (waiting s) as [[h e]|] eqn:W; [|discriminate]. destruct (list_eq (entries s) (e :: h)) eqn:E; [|discriminate]. injection H as <-. eapply found; [exact W|apply list_eq_ok; assumption].
  - destruct (waiting s) as [[h e]|] eqn:W; [|discriminate]. destruct (list_eq (entries s) (e :: h)) eqn:E; [|discriminate]. injection H as <-. eapply answer; [exact W|apply list_eq_ok; assumption].
  - injection H as <-. apply die. Qed.
