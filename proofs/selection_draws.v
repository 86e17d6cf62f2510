(* choose_k.md, Lemma 1, and peel.md, Lemmas 3 and 4: utilities of gaps, names of items without a vote, and the group that
   random bits settle. All run (check.py extracts them). *)
Require Import ZArith QArith Qreduction List Lia Lqa Arith Bool.
Import ListNotations.
From Proofs Require Import top_k executable.
Open Scope Z_scope.

(* The j-th largest count, found among the counts. *)
Definition kth_value (m : nat) (h : nat -> Z) (j : nat) : Z := match find (kthb m h j) (map h (seq 0 m)) with Some v => v | None => 0 end.
Lemma kth_attained : forall m h j v, kth m h j v -> exists i, (i < m)%nat /\ h i = v.
Proof. intros m h j v [A B].
  destruct (Exists_dec (fun i => h i = v) (seq 0 m) ltac:(intro; apply Z.eq_dec)) as [E|E].
  - apply Exists_exists in E. destruct E as (i & Hi & E). apply in_seq in Hi. exists i. split; [lia|assumption].
  - exfalso. pose proof (at_least_le m h h v (v + 1)) as L. assert (at_least m h v <= at_least m h (v + 1))%nat; [|lia].
    apply L. intros i Hi Hv. destruct (Z.eq_dec (h i) v) as [F|F]; [|lia]. exfalso. apply E. apply Exists_exists. exists i. split; [apply in_seq; lia|assumption]. Qed.
Theorem kth_value_is_kth : forall m h j, (1 <= j <= m)%nat -> kth m h j (kth_value m h j).
Proof. intros m h j Hj. destruct (kth_exists m h j Hj) as [v Hv]. unfold kth_value.
  destruct (find (kthb m h j) (map h (seq 0 m))) as [w|] eqn:F.
  - apply find_some in F. destruct F as [_ F]. apply kthb_ok. assumption.
  - exfalso. destruct (kth_attained m h j v Hv) as (i & Hi & E). pose proof (find_none _ _ F v) as N.
    rewrite (proj2 (kthb_ok m h j v) Hv) in N. apply diff_true_false. apply N. apply in_map_iff. exists i. split; [assumption|apply in_seq; lia]. Qed.

(* The utility of rank j: its gap up to a ceiling, less a public penalty; no ceiling is None. *)
Definition kept_gap (ceiling : option Z) (g : Z) := match ceiling with Some c => Z.min g c | None => g end.
Definition utility (m : nat) (h : nat -> Z) (ceiling : option Z) (penalty : nat -> Z) (j : nat) :=
  kept_gap ceiling (kth_value m h j - kth_value m h (S j)) - penalty j.
Definition utilities (m K : nat) (h : nat -> Z) (ceiling : option Z) (penalty : nat -> Z) := map (utility m h ceiling penalty) (seq 1 K).
(* The penalty floor(slope |j - k|) for the slope num / den. *)
Definition penalty_of (num den k : Z) (j : nat) := num * Z.abs (Z.of_nat j - k) / den.

(* choose_k.md, Lemma 1: a users added and b removed move every utility by at most a + b. *)
Theorem utility_moves : forall m a b h h' ceiling penalty j, near m a b h h' -> (1 <= j < m)%nat ->
  Z.abs (utility m h' ceiling penalty j - utility m h ceiling penalty j) <= a + b.
Proof. intros m a b h h' ceiling penalty j Hn Hj. unfold utility, kept_gap.
  pose proof (gap_moves m a b h h' j _ _ _ _ Hn (kth_value_is_kth m h j ltac:(lia)) (kth_value_is_kth m h (S j) ltac:(lia))
    (kth_value_is_kth m h' j ltac:(lia)) (kth_value_is_kth m h' (S j) ltac:(lia))). destruct ceiling; lia. Qed.

(* peel.md, Lemma 3: the number that is the r-th (from 0) of those absent from sorted different items. *)
Fixpoint absent (items : list Z) (r : Z) : Z := match items with [] => r | x :: l => if x <=? r then absent l (r + 1) else r end.
Fixpoint rising (least : Z) (l : list Z) : Prop := match l with [] => True | x :: r => least <= x /\ rising (x + 1) r end.
Definition below (items : list Z) (t : Z) := Z.of_nat (length (filter (fun x => x <? t) items)).
Lemma rising_above : forall l least x, rising least l -> In x l -> least <= x.
Proof. induction l as [|y l IH]; simpl; intros least x H Hx; [contradiction|]. destruct H as [A B]. destruct Hx as [->|Hx]; [assumption|]. specialize (IH _ _ B Hx). lia. Qed.
Lemma none_below : forall l least t, rising least l -> t <= least -> filter (fun x => x <? t) l = [].
Proof. induction l as [|y l IH]; simpl; intros least t H L; [reflexivity|]. destruct H as [A B]. destruct (Z.ltb_spec y t); [lia|]. apply (IH (y + 1)); [assumption|lia]. Qed.
Lemma absent_at_least : forall l r, r <= absent l r.
Proof. induction l as [|x l IH]; simpl; intro r; [lia|]. destruct (x <=? r); [specialize (IH (r + 1)); lia|lia]. Qed.
(* It is no item, and r numbers from 0 on that are no items are before it. *)
Theorem absent_rank : forall items r, rising 0 items -> 0 <= r -> ~ In (absent items r) items /\ absent items r - below items (absent items r) = r.
Proof. assert (G : forall l least r, rising least l -> ~ In (absent l r) l /\ absent l r - below l (absent l r) = r).
  { induction l as [|x l IH]; intros least r H; [unfold below; simpl; split; [tauto|lia]|]. simpl in H. destruct H as [A B]. simpl absent.
    destruct (Z.leb_spec x r) as [L|L].
    - destruct (IH (x + 1) (r + 1) B) as [N E]. pose proof (absent_at_least l (r + 1)). split.
      + intros [->|Hi]; [lia|contradiction].
      + unfold below in *. cbn [filter]. destruct (Z.ltb_spec x (absent l (r + 1))); [|lia]. cbn [length]. lia.
    - split.
      + intros [->|Hi]; [lia|]. pose proof (rising_above l (x + 1) r B Hi). lia.
      + unfold below. cbn [filter]. destruct (Z.ltb_spec x r); [lia|]. rewrite (none_below l (x + 1) r B) by lia. simpl. lia. }
  intros items r H _. apply (G items 0 r H). Qed.

(* peel.md, Lemma 4. Groups have sizes and certified bounds of the weight of one candidate, from the greatest count down;
   `far` more candidates weigh at most one unit each. The bits drawn say that u is in [drawn, drawn + 1) / 2^bits. *)
Fixpoint settle (B surely surely_not low high : Z) (g : nat) (l : list (Z * Z * Z)) : option nat := match l with [] => None
  | (n, lo, hi) :: r => let low' := low + n * lo in let high' := high + n * hi in
      if surely <=? low' * B then (if high * B <=? surely_not then Some g else None) else settle B surely surely_not low' high' (S g) r end.
Fixpoint lowest (l : list (Z * Z * Z)) := match l with [] => 0 | (n, lo, _) :: r => n * lo + lowest r end.
Fixpoint highest (l : list (Z * Z * Z)) := match l with [] => 0 | (n, _, hi) :: r => n * hi + highest r end.
Definition settled (bits drawn far : Z) (l : list (Z * Z * Z)) := settle (2 ^ bits) ((drawn + 1) * (highest l + far)) (drawn * lowest l) 0 0 0 l.

(* True weights are rational numbers here; `before w l g` is the weight of the first g groups. *)
Open Scope Q_scope.
Fixpoint before (w : list Q) (l : list (Z * Z * Z)) (g : nat) : Q := match g, w, l with
  | S g', x :: w', (n, _, _) :: l' => inject_Z n * x + before w' l' g' | _, _, _ => 0 end.
Definition bounded (w : list Q) (l : list (Z * Z * Z)) := Forall2 (fun x e => 0 <= inject_Z (fst (fst e)) /\ inject_Z (snd (fst e)) <= x /\ x <= inject_Z (snd e)) w l.
Definition all_of (w : list Q) (l : list (Z * Z * Z)) := before w l (length l).
Lemma before_0 : forall w l, before w l 0 = 0.
Proof. destruct w, l; reflexivity. Qed.
Lemma before_S : forall x w n lo hi l g, before (x :: w) ((n, lo, hi) :: l) (S g) = inject_Z n * x + before w l g.
Proof. reflexivity. Qed.
Lemma times_le : forall n x y, 0 <= n -> x <= y -> n * x <= n * y.
Proof. intros n x y N H. assert (0 <= n * (y - x)) by (apply Qmult_le_0_compat; lra). lra. Qed.
Lemma inject_step : forall a n b, inject_Z (a + n * b) == inject_Z a + inject_Z n * inject_Z b.
Proof. intros. rewrite inject_Z_plus, inject_Z_mult. reflexivity. Qed.
Lemma total_between : forall w l, bounded w l -> inject_Z (lowest l) <= all_of w l /\ all_of w l <= inject_Z (highest l).
Proof. intros w l H. induction H as [|x [[n lo] hi] w l [N [A C]] H IH]; [unfold all_of; simpl; split; apply Qle_refl|].
  unfold all_of in *. cbn [length before lowest highest fst snd] in *. destruct IH as [D E].
  rewrite (inject_Z_plus (n * lo)), (inject_Z_plus (n * hi)), !inject_Z_mult.
  pose proof (times_le _ _ _ N A). pose proof (times_le _ _ _ N C). split; lra. Qed.
Lemma settle_ok : forall B surely surely_not, 0 < inject_Z B -> forall w l, bounded w l -> forall low high g s done, settle B surely surely_not low high g l = Some s ->
  inject_Z low <= done -> done <= inject_Z high -> exists i, s = (g + i)%nat /\ (i < length l)%nat /\
  inject_Z surely <= inject_Z B * (done + before w l (S i)) /\ inject_Z B * (done + before w l i) <= inject_Z surely_not.
Proof. intros B surely surely_not B0 w l H. induction H as [|x [[n lo] hi] w l [N [A C]] H IH]; intros low high g s done E L U; [discriminate|].
  cbn [settle fst snd] in *. pose proof (times_le _ _ _ N A) as A'. pose proof (times_le _ _ _ N C) as C'.
  pose proof (inject_step low n lo) as S1. pose proof (inject_step high n hi) as S2.
  destruct (surely <=? (low + n * lo) * B)%Z eqn:Q1.
  - destruct (high * B <=? surely_not)%Z eqn:Q2; [|discriminate]. injection E as <-. exists 0%nat. split; [lia|split; [simpl; lia|]].
    apply Z.leb_le in Q1, Q2. rewrite Zle_Qle, inject_Z_mult in Q1, Q2. rewrite before_S, !before_0. split.
    + assert (inject_Z B * inject_Z (low + n * lo) <= inject_Z B * (done + (inject_Z n * x + 0))) by (apply times_le; lra). lra.
    + assert (inject_Z B * (done + 0) <= inject_Z B * inject_Z high) by (apply times_le; lra). lra.
  - destruct (IH _ _ _ _ (done + inject_Z n * x) E ltac:(lra) ltac:(lra)) as (i & -> & I & P & R).
    exists (S i). split; [lia|split; [simpl; lia|]]. rewrite !before_S. split.
    + assert (done + inject_Z n * x + before w l (S i) == done + (inject_Z n * x + before w l (S i))) as F by lra. rewrite <- F. exact P.
    + assert (done + inject_Z n * x + before w l i == done + (inject_Z n * x + before w l i)) as F by lra. rewrite <- F. exact R. Qed.

(* The group that is settled holds u W for every u of the interval, W the weight of all that are left. *)
Theorem settled_group : forall bits drawn far w l s u rest, (0 <= bits)%Z -> (0 <= drawn)%Z -> bounded w l -> settled bits drawn far l = Some s ->
  0 <= rest -> rest <= inject_Z far -> 0 < all_of w l + rest -> inject_Z drawn <= inject_Z (2 ^ bits) * u -> inject_Z (2 ^ bits) * u < inject_Z (drawn + 1) ->
  before w l s <= u * (all_of w l + rest) /\ u * (all_of w l + rest) < before w l (S s).
Proof. intros bits drawn far w l s u rest Hb Hd Hw E R0 R1 W0 U0 U1. unfold settled in E.
  assert (B0 : 0 < inject_Z (2 ^ bits)) by (change 0 with (inject_Z 0); rewrite <- Zlt_Qlt; apply Z.pow_pos_nonneg; lia).
  destruct (settle_ok _ _ _ B0 w l Hw 0 0 0%nat s 0 E (Qle_refl 0) (Qle_refl 0)) as (i & -> & _ & P & S).
  destruct (total_between w l Hw) as [T0 T1]. set (W := all_of w l + rest) in *. set (B := inject_Z (2 ^ bits)) in *.
  rewrite inject_Z_mult in P, S. rewrite (inject_Z_plus (highest l)) in P. cbn [plus].
  assert (D0 : 0 <= inject_Z drawn) by (change 0 with (inject_Z 0); rewrite <- Zle_Qle; assumption).
  assert (V1 : 0 < (inject_Z (drawn + 1) - B * u) * W) by (apply Qmult_lt_0_compat; lra).
  assert (V2 : inject_Z (drawn + 1) * W <= inject_Z (drawn + 1) * (inject_Z (highest l) + inject_Z far)) by (apply times_le; [|unfold W; lra]; lra).
  assert (V3 : inject_Z drawn * inject_Z (lowest l) <= inject_Z drawn * W) by (apply times_le; [assumption|unfold W; lra]).
  assert (V4 : 0 <= (B * u - inject_Z drawn) * W) by (apply Qmult_le_0_compat; lra).
  split.
  - apply (Qmult_le_l _ _ B B0). assert (B * (0 + before w l i) == B * before w l i) as F by ring. rewrite F in S.
    assert (B * (u * W) == (B * u) * W) as G by ring. rewrite G. lra.
  - apply (Qmult_lt_l _ _ B B0). assert (B * (0 + before w l (Datatypes.S i)) == B * before w l (Datatypes.S i)) as F by ring. rewrite F in P.
    assert (B * (u * W) == (B * u) * W) as G by ring. rewrite G. lra. Qed.
