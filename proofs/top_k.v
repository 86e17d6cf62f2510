(* Order statistics, gaps and top-k sets of integer counts: choose_k.md, Lemma 0; stable_set.md, Lemma 1; the cases of
   the curves of stability tests. An unknown catalogue is a large m, whose items without a vote have count 0. *)
Require Import ZArith List Lia QArith Lqa.
Import ListNotations.
Open Scope Z_scope.

Section TopK.
Variable m : nat.
Definition items := seq 0 m.
Definition at_least (h : nat -> Z) (t : Z) := length (filter (fun i => t <=? h i) items).

(* v is the j-th largest count: at least j counts are at least v, and fewer than j are above v. *)
Definition kth (h : nat -> Z) (j : nat) (v : Z) := (j <= at_least h v)%nat /\ (at_least h (v + 1) < j)%nat.

Lemma filter_le : forall (p q : nat -> bool) l, (forall i, In i l -> p i = true -> q i = true) -> (length (filter p l) <= length (filter q l))%nat.
Proof. induction l as [|i l IH]; simpl; intro H; [lia|]. specialize (IH ltac:(intros; apply H; auto)).
  destruct (p i) eqn:P; [rewrite (H i); auto; simpl; lia|]. destruct (q i); simpl; lia. Qed.
Lemma at_least_le : forall h h' t t', (forall i, (i < m)%nat -> t <= h i -> t' <= h' i) -> (at_least h t <= at_least h' t')%nat.
Proof. intros. apply filter_le. intros i Hi E. apply in_seq in Hi. apply Z.leb_le in E. apply Z.leb_le. apply H; [lia|assumption]. Qed.
Theorem kth_unique : forall h j v w, kth h j v -> kth h j w -> v = w.
Proof. intros h j v w [A B] [C D]. destruct (Z_lt_le_dec v w); [|destruct (Z_lt_le_dec w v); [|lia]]; exfalso.
  - pose proof (at_least_le h h w (v + 1) ltac:(intros; lia)). lia.
  - pose proof (at_least_le h h v (w + 1) ltac:(intros; lia)). lia. Qed.
Theorem kth_exists : forall h j, (1 <= j <= m)%nat -> exists v, kth h j v.
Proof. intros h j Hj.
  assert (L : exists lo, forall i, (i < m)%nat -> lo <= h i).
  { clear. induction m as [|n [lo IH]]; [exists 0; intros; lia|]. exists (Z.min lo (h n)). intros i Hi.
    destruct (Nat.eq_dec i n) as [->|]; [lia|]. specialize (IH i ltac:(lia)). lia. }
  assert (U : exists hi, forall i, (i < m)%nat -> h i <= hi).
  { clear. induction m as [|n [hi IH]]; [exists 0; intros; lia|]. exists (Z.max hi (h n)). intros i Hi.
    destruct (Nat.eq_dec i n) as [->|]; [lia|]. specialize (IH i ltac:(lia)). lia. }
  destruct L as [lo L], U as [hi U].
  assert (A : (j <= at_least h lo)%nat).
  { unfold at_least. replace (filter (fun i => lo <=? h i) items) with items; [unfold items; rewrite seq_length; lia|].
    symmetry. assert (forall l, (forall i, In i l -> (i < m)%nat) -> filter (fun i => lo <=? h i) l = l) as G.
    { induction l as [|i l IH]; simpl; intro Hl; [reflexivity|]. rewrite (proj2 (Z.leb_le lo (h i))) by (apply L; auto). rewrite IH; auto. }
    apply G. intros i Hi. apply in_seq in Hi. lia. }
  assert (B : at_least h (hi + 1) = 0%nat).
  { unfold at_least. assert (forall l, (forall i, In i l -> (i < m)%nat) -> filter (fun i => hi + 1 <=? h i) l = []) as G.
    { induction l as [|i l IH]; simpl; intro Hl; [reflexivity|]. destruct (Z.leb_spec (hi + 1) (h i)); [specialize (U i (Hl i (or_introl eq_refl))); lia|]. apply IH. auto. }
    rewrite G; [reflexivity|]. intros i Hi. apply in_seq in Hi. lia. }
  assert (G : forall n t, (j <= at_least h t)%nat -> (at_least h (t + Z.of_nat n) < j)%nat -> exists v, kth h j v).
  { induction n as [|n IH]; intros t Ht Hn; [rewrite Z.add_0_r in Hn; lia|].
    destruct (le_lt_dec j (at_least h (t + 1))) as [E|E]; [|exists t; split; assumption].
    apply (IH (t + 1) E). replace (t + 1 + Z.of_nat n) with (t + Z.of_nat (S n)) by lia. assumption. }
  apply (G (Z.to_nat (hi + 1 - lo)) lo A).
  destruct (Z_le_gt_dec lo (hi + 1)).
  - replace (lo + Z.of_nat (Z.to_nat (hi + 1 - lo))) with (hi + 1) by lia. lia.
  - exfalso. pose proof (at_least_le h h lo (hi + 1) ltac:(intros; lia)). lia. Qed.

(* What a users added and b removed do to every count. *)
Definition near (a b : Z) (h h' : nat -> Z) := forall i, (i < m)%nat -> - b <= h' i - h i <= a.

(* choose_k.md, Lemma 0: every order statistic moves by at least -b and at most a, so every gap by at most a + b. *)
Theorem kth_moves : forall a b h h' j v v', near a b h h' -> kth h j v -> kth h' j v' -> - b <= v' - v <= a.
Proof. intros a b h h' j v v' H [A B] [C D]. split.
  - destruct (Z_lt_le_dec (v' - v) (- b)); [exfalso|assumption].
    pose proof (at_least_le h h' v (v' + 1) ltac:(intros i Hi E; specialize (H i Hi); lia)). lia.
  - destruct (Z_lt_le_dec a (v' - v)); [exfalso|assumption].
    pose proof (at_least_le h' h v' (v + 1) ltac:(intros i Hi E; specialize (H i Hi); lia)). lia. Qed.

Theorem gap_moves : forall a b h h' j p q p' q', near a b h h' -> kth h j p -> kth h (S j) q -> kth h' j p' -> kth h' (S j) q' ->
  Z.abs ((p' - q') - (p - q)) <= a + b.
Proof. intros. pose proof (kth_moves a b h h' j p p' ltac:(assumption) ltac:(assumption) ltac:(assumption)).
  pose proof (kth_moves a b h h' (S j) q q' ltac:(assumption) ltac:(assumption) ltac:(assumption)). lia. Qed.
Theorem gap_nonneg : forall h j p q, kth h j p -> kth h (S j) q -> 0 <= p - q.
Proof. intros h j p q [A B] [C D]. destruct (Z_lt_le_dec p q); [exfalso|lia]. pose proof (at_least_le h h q (p + 1) ltac:(intros; lia)). lia. Qed.

(* A top-k set: k different items, none outside with a larger count. Ties may be broken in any way. *)
Definition top (h : nat -> Z) (k : nat) (S : list nat) :=
  NoDup S /\ length S = k /\ (forall x, In x S -> (x < m)%nat) /\ forall x y, In x S -> ~ In y S -> (y < m)%nat -> h y <= h x.
Lemma top_in : forall h k S x p, top h k S -> kth h k p -> In x S -> p <= h x.
Proof. intros h k S x p (Hn & Hl & Hm & Ht) [A B] Hx. destruct (Z_lt_le_dec (h x) p) as [E|]; [exfalso|assumption].
  assert (I : incl (filter (fun i => p <=? h i) items) (filter (fun i => negb (Nat.eqb i x)) S)).
  { intros z Hz. apply filter_In in Hz. destruct Hz as [Hz Ez]. apply Z.leb_le in Ez. apply in_seq in Hz. apply filter_In. split.
    - destruct (in_dec Nat.eq_dec z S); [assumption|]. specialize (Ht x z Hx n ltac:(lia)). lia.
    - destruct (Nat.eqb_spec z x); [subst; lia|reflexivity]. }
  apply NoDup_incl_length in I; [|apply NoDup_filter; apply seq_NoDup].
  assert (L : (length (filter (fun i => negb (Nat.eqb i x)) S) < length S)%nat).
  { clear - Hx. induction S as [|s S IH]; simpl in *; [contradiction|]. destruct (Nat.eqb_spec s x) as [->|]; simpl.
    - clear. induction S as [|t S IH]; simpl in *; [lia|]. destruct (negb (Nat.eqb t x)); simpl in *; lia.
    - destruct Hx; [congruence|]. specialize (IH H). lia. }
  unfold at_least in A. lia. Qed.
Lemma top_out : forall h k S y q, top h k S -> kth h (Datatypes.S k) q -> ~ In y S -> (y < m)%nat -> h y <= q.
Proof. intros h k S y q (Hn & Hl & Hm & Ht) [A B] Hy Hym. destruct (Z_lt_le_dec q (h y)) as [E|]; [exfalso|assumption].
  assert (I : incl (y :: S) (filter (fun i => q + 1 <=? h i) items)).
  { intros z [->|Hz]; apply filter_In; (split; [apply in_seq|apply Z.leb_le]).
    - lia. - lia. - specialize (Hm z Hz). lia. - specialize (Ht z y Hz Hy Hym). lia. }
  apply NoDup_incl_length in I; [|constructor; assumption]. unfold at_least in B. simpl length in I. lia. Qed.

(* limited_domain.md, Lemma 1. v and v' are the counts at rank k + 1. An item that is not among the first k of h has at most v votes.
   An item that is not among the first k of h', or has no vote there, has at most v + a + b votes in h. *)
Theorem outside_below_cut : forall h k S x v, top h k S -> kth h (Datatypes.S k) v -> ~ In x S -> (x < m)%nat -> h x <= v.
Proof. intros h k S x v HS Hv. apply (top_out h k S x v HS Hv). Qed.
Theorem leaving_near_cut : forall a b h h' k S' x v v', near a b h h' -> top h' k S' -> kth h (Datatypes.S k) v -> kth h' (Datatypes.S k) v' ->
  (x < m)%nat -> ~ In x S' \/ (h' x <= 0 /\ 0 <= v') -> h x - v <= a + b.
Proof. intros a b h h' k S' x v v' Hn HS Hv Hv' Hx Ho.
  assert (h' x <= v') by (destruct Ho as [Ho|Ho]; [apply (top_out h' k S' x v' HS Hv' Ho Hx)|lia]).
  pose proof (kth_moves a b h h' _ v v' Hn Hv Hv'). specialize (Hn x Hx). lia. Qed.

(* stable_set.md, Lemma 1: if two top-k sets differ, the two gaps add up to at most a + b. *)
Theorem different_sets : forall a b h h' k S S' p q p' q', near a b h h' -> top h k S -> top h' k S' ->
  kth h k p -> kth h (Datatypes.S k) q -> kth h' k p' -> kth h' (Datatypes.S k) q' ->
  ~ (forall x, In x S <-> In x S') -> (p - q) + (p' - q') <= a + b.
Proof. intros a b h h' k S S' p q p' q' Hnear HS HS' Hp Hq Hp' Hq' Hd.
  assert (D : forall T T' : list nat, NoDup T -> length T' = length T -> ~ (forall x, In x T <-> In x T') -> NoDup T' -> exists x, In x T /\ ~ In x T').
  { intros T T' Hn Hl Hne Hn'. destruct (Exists_dec (fun x => ~ In x T') T) as [E|E].
    - intro x. destruct (in_dec Nat.eq_dec x T'); [right; tauto|left; assumption].
    - apply Exists_exists in E. exact E.
    - exfalso. apply Hne. assert (I : incl T T').
      { intros x Hx. destruct (in_dec Nat.eq_dec x T'); [assumption|]. exfalso. apply E. apply Exists_exists. exists x. split; assumption. }
      intro x. split; [apply I|]. apply (NoDup_length_incl Hn); [lia|assumption]. }

  assert (T1 := HS). assert (T2 := HS'). destruct T1 as (n1 & l1 & m1 & t1). destruct T2 as (n2 & l2 & m2 & t2).
  destruct (D S S' n1 ltac:(congruence) Hd n2) as (x & Hx & Hx').
  destruct (D S' S n2 ltac:(congruence) ltac:(intro G; apply Hd; intro z; symmetry; apply G) n1) as (y & Hy & Hy').
  pose proof (top_in h k S x p HS Hp Hx). pose proof (top_out h k S y q HS Hq Hy' (m2 y Hy)).
  pose proof (top_in h' k S' y p' HS' Hp' Hy). pose proof (top_out h' k S' x q' HS' Hq' Hx' (m1 x Hx)).
  pose proof (Hnear x (m1 x Hx)). pose proof (Hnear y (m2 y Hy)). lia. Qed.

(* So a gap above a + b fixes the set on every dataset at that distance. *)
Theorem gap_fixes_set : forall a b h h' k T T' p q, (1 <= k)%nat -> (k < m)%nat -> near a b h h' -> top h k T -> top h' k T' ->
  kth h k p -> kth h (S k) q -> a + b < p - q -> forall x, In x T <-> In x T'.
Proof. intros a b h h' k T T' p q Hk Hkm Hn HT HT' Hp Hq Hg x.
  destruct (kth_exists h' k ltac:(lia)) as [p' Hp']. destruct (kth_exists h' (S k) ltac:(lia)) as [q' Hq'].
  assert (Dec : (forall x, In x T <-> In x T') \/ ~ (forall x, In x T <-> In x T')).
  { destruct (Forall_dec (fun z => In z T') ltac:(intro z; apply (in_dec Nat.eq_dec)) T) as [F|F];
    destruct (Forall_dec (fun z => In z T) ltac:(intro z; apply (in_dec Nat.eq_dec)) T') as [G|G].
    - left. rewrite Forall_forall in F, G. intro z. split; auto.
    - right. intro E. apply G. apply Forall_forall. intros z Hz. apply E. assumption.
    - right. intro E. apply F. apply Forall_forall. intros z Hz. apply E. assumption.
    - right. intro E. apply F. apply Forall_forall. intros z Hz. apply E. assumption. }
  destruct Dec as [E|E]; [apply E|exfalso].
  pose proof (different_sets a b h h' k T T' p q p' q' Hn HT HT' Hp Hq Hp' Hq' E).
  pose proof (gap_nonneg h' k p' q' Hp' Hq'). lia. Qed.

(* stable_set.md, Lemma 1, second case: fewer than k items have a vote, on counts that are at least 0 on both sides. *)
Theorem without_votes : forall a b h h' k p q p' q', 0 <= b -> (forall i, 0 <= h i) -> (forall i, 0 <= h' i) -> (k < m)%nat -> near a b h h' ->
  (at_least h 1 < k)%nat -> kth h k p -> kth h (S k) q -> kth h' k p' -> kth h' (S k) q' -> p - q = 0 /\ (p - q) + (p' - q') <= a + b.
Proof. intros a b h h' k p q p' q' Hb H0 H0' Hkm Hn Hv Hp Hq Hp' Hq'.
  assert (G : forall g j v, (forall i, 0 <= g i) -> (1 <= j <= m)%nat -> kth g j v -> 0 <= v).
  { intros g j v Hg Hj [A B]. destruct (Z_lt_le_dec v 0); [exfalso|assumption].
    assert (at_least g (v + 1) = m).
    { unfold at_least. assert (forall ll, filter (fun i => v + 1 <=? g i) ll = ll) as F.
      { intro ll. induction ll as [|i ll IH]; simpl; [reflexivity|]. rewrite (proj2 (Z.leb_le (v + 1) (g i))) by (specialize (Hg i); lia). rewrite IH. reflexivity. }
      rewrite F. apply seq_length. }
    lia. }
  pose proof (G h (S k) q H0 ltac:(lia) Hq). pose proof (G h' (S k) q' H0' ltac:(lia) Hq').
  assert (p <= 0).
  { destruct (Z_lt_le_dec 0 p); [exfalso|assumption]. destruct Hp as [A _]. pose proof (at_least_le h h p 1 ltac:(intros; lia)). lia. }
  pose proof (gap_nonneg h k p q Hp Hq). pose proof (kth_moves a b h h' k p p' Hn Hp Hp'). lia. Qed.
End TopK.

(* The bound is attained by counts (2, 0) and (0, 3) at distance 5. *)
Example attained : let h := fun i => if Nat.eqb i 0 then 2 else 0 in let h' := fun i => if Nat.eqb i 1 then 3 else 0 in
  near 2 3 2 h h' /\ top 2 h 1 [0%nat] /\ top 2 h' 1 [1%nat] /\ kth 2 h 1 2 /\ kth 2 h 2 0 /\ kth 2 h' 1 3 /\ kth 2 h' 2 0.
Proof. intros h h'.
  assert (T : forall g x y, (x = 0 /\ y = 1 \/ x = 1 /\ y = 0)%nat -> g y <= g x -> top 2 g 1 [x]).
  { intros g x y Hxy Hg. split; [constructor; [simpl; tauto|constructor]|]. split; [reflexivity|]. split.
    - intros z [<-|[]]. lia.
    - intros z w [<-|[]] Hw Hm. assert (w = y) as -> by (simpl in Hw; lia). assumption. }
  split; [intros i Hi; destruct i as [|[|i]]; unfold h, h'; simpl; lia|].
  split; [apply (T h 0%nat 1%nat); [lia|unfold h; simpl; lia]|].
  split; [apply (T h' 1%nat 0%nat); [lia|unfold h'; simpl; lia]|].
  repeat split; vm_compute; lia. Qed.

Open Scope Q_scope.

(* The two cases as inequalities between probabilities, in rational numbers; c stands for e^eps. *)
Definition ind (b : bool) : Q := if b then 1 else 0.

(* stability.md, Lemma 1, different sets: release chances p and p' of at most delta. The event is given by three truth
   values: whether S, S' and no answer are in it. *)
Theorem different_case : forall c p p' delta sS sS' sN, 1 <= c -> 0 <= p -> p <= delta -> 0 <= p' -> p' <= delta -> delta <= 1 ->
  (ind sS * p + ind sN * (1 - p)) <= c * (ind sS' * p' + ind sN * (1 - p')) + delta.
Proof. intros. destruct sS, sS', sN; unfold ind; nra. Qed.

(* gated_peel.md, Lemma 2: D bounds A(E) - c B(E) for the two laws A, B of peeling. *)
Theorem gated_different : forall c p q A B D delta (i j : Q), 0 <= c -> 0 <= p -> 0 <= q -> p <= delta -> q <= delta -> delta <= 1 ->
  0 <= A -> A <= 1 -> 0 <= B -> 0 <= D -> D <= 1 -> A - c * B <= D -> 0 <= i -> i <= 1 -> 0 <= j ->
  (i * p + (1 - p) * A) - c * (j * q + (1 - q) * B) <= delta + (1 - delta) * D.
Proof. intros.
  assert (i * p <= p) by nra. assert (0 <= c * (j * q)) by (apply Qmult_le_0_compat; [assumption|apply Qmult_le_0_compat; assumption]).
  destruct (Qlt_le_dec p q) as [E|E].
  - assert ((1 - q) * (A - c * B) <= (1 - q) * D) by nra. assert ((q - p) * A <= q - p) by nra.
    assert (q + (1 - q) * D <= delta + (1 - delta) * D) by nra. nra.
  - assert ((1 - p) * (A - c * B) <= (1 - p) * D) by nra. assert (c * ((1 - p) * B) <= c * ((1 - q) * B)) by (assert ((1-p) * B <= (1-q) * B) by nra; nra).
    assert (p + (1 - p) * D <= delta + (1 - delta) * D) by nra. nra. Qed.
