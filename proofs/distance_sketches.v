(* Sketches of sums of distances: distance_tree.md, moment_tree.md and threshold_sketch.md. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance sparse_sums.
Open Scope Z_scope.

(* distance_tree.md, Lemma 1. Level l of column j is block j (H + 1) + l; leaf x of 2^H lies in node x / 2^(H - l) of
   level l. H levels below the root, d columns, L classes, multiplier u of a column. *)
Lemma upto_blocks : forall (g : nat -> Z) m d, (0 < m)%nat -> upto (fun b => g (b / m)%nat) (d * m) = Z.of_nat m * upto g d.
Proof. intros g m d Hm. induction d as [|d IH]; [simpl; lia|].
  assert (A : forall n, (n <= m)%nat -> upto (fun b => g (b / m)%nat) (d * m + n) = upto (fun b => g (b / m)%nat) (d * m) + Z.of_nat n * g d).
  { induction n as [|n IHn]; intro Hn; [rewrite Nat.add_0_r; lia|]. rewrite Nat.add_succ_r. simpl upto.
    rewrite IHn by lia. rewrite Nat.div_add_l by lia. rewrite (Nat.div_small n m) by lia. rewrite Nat.add_0_r. lia. }
  replace (S d * m)%nat with (d * m + m)%nat by (simpl; lia). rewrite A by lia. rewrite IH. simpl upto. lia. Qed.

Section Tree.
Variables H d L : nat.
Variable u : nat -> Z. Hypothesis u0 : forall j, 0 <= u j.
Variable R : Type. Variable eq_dec : forall x y : R, {x = y} + {x <> y}.
Variable label : R -> nat. Variable leaf : R -> nat -> nat.
Hypothesis Hl : forall r, (label r < L)%nat. Hypothesis Hleaf : forall r j, (leaf r j < 2 ^ H)%nat.
Definition node (r : R) (b : nat) : nat := (leaf r (b / S H) / 2 ^ (H - b mod S H))%nat.
Lemma node_ok : forall r b, (node r b < 2 ^ H)%nat.
Proof. intros. unfold node. eapply Nat.le_lt_trans; [|apply (Hleaf r (b / S H))]. apply Nat.div_le_upper_bound; [apply Nat.pow_nonzero; lia|].
  assert (1 <= 2 ^ (H - b mod S H))%nat by (pose proof (Nat.pow_nonzero 2 (H - b mod S H)); lia). nia. Qed.
Definition tree (r : R) := feat (d * S H) (2 ^ H) L 0 R label node (fun _ b => u (b / S H)%nat) r.
Notation K := (k (d * S H) (2 ^ H) L).

(* One record has L1 norm (H + 1) sum u and squared L2 norm (H + 1) sum u^2, exactly: any record attains the bounds. *)
Theorem tree_one_record : forall r, upto (fun i => Z.abs (tree r i)) K = Z.of_nat (S H) * upto u d /\
  dot K (tree r) (tree r) = Z.of_nat (S H) * upto (fun j => u j * u j) d.
Proof. intro r. unfold tree. split.
  - rewrite feat_l1 by (first [lia | intros; apply node_ok | auto]). rewrite (upto_eq _ (fun b => u (b / S H)%nat)) by (intro; specialize (u0 (i / S H)); lia).
    rewrite upto_blocks by lia. lia.
  - rewrite feat_l2 by (first [lia | intros; apply node_ok | auto]). rewrite (upto_blocks (fun j => u j * u j)) by lia. lia. Qed.

(* At symmetric distance n, with L-infinity at most the largest u times n. *)
Theorem tree_stability : forall xs ys n, (distance R eq_dec xs ys <= n)%nat ->
  let v := vsub (total R tree xs) (total R tree ys) in
  upto (fun i => Z.abs (v i)) K <= Z.of_nat (S H) * upto u d * Z.of_nat n /\
  dot K v v <= Z.of_nat (S H) * upto (fun j => u j * u j) d * (Z.of_nat n * Z.of_nat n) /\
  forall m, (forall j, u j <= m) -> forall i, (i < K)%nat -> Z.abs (v i) <= m * Z.of_nat n.
Proof. intros xs ys n Hn v.
  destruct (blocks_stability (d * S H) (2 ^ H) L 0 ltac:(lia) R eq_dec label node (fun _ b => u (b / S H)%nat) (fun b => u (b / S H)%nat)
     Hl ltac:(intros; apply node_ok) ltac:(intro; apply u0) ltac:(intros r b _; cbv beta; pose proof (u0 (b / S H)%nat); lia) xs ys n Hn) as (A & B & C).
  fold tree in A, B, C. rewrite upto_blocks in A by lia. rewrite (upto_blocks (fun j => u j * u j)) in B by lia.
  split; [|split].
  - rewrite Z.add_0_r in A. exact A.
  - rewrite Z.add_0_r in B. exact B.
  - intros m Hm. apply C; [pose proof (u0 0%nat); specialize (Hm 0%nat); lia|pose proof (u0 0%nat); specialize (Hm 0%nat); lia|auto]. Qed.

(* One more record moves no cell down. *)
Theorem tree_monotone : forall r xs i, total R tree xs i <= total R tree (r :: xs) i.
Proof. intros. cbn [total]. unfold vadd.
  assert (0 <= tree r i); [|lia]. unfold tree, feat. apply (sparse_values _ (fun z => 0 <= z)); [lia|].
  intros e [<-|He]; [simpl; lia|]. apply in_map_iff in He. destruct He as (b & <- & _). apply u0. Qed.
End Tree.

(* Replacing a record is distance 2. With one level and u = 1 the L1 change is 4 = 2 (H + 1) where the new record has
   another class, and 2 = 2 H within a class. *)
Example replace_other_class :
  let label (r : nat) := r in let leaf (r j : nat) := 0%nat in
  let t := tree 1 1 2 (fun _ => 1) nat label leaf in
  upto (fun i => Z.abs (vsub (t 0%nat) (t 1%nat) i)) (k (1 * 2) (2 ^ 1) 2) = 4.
Proof. vm_compute. reflexivity. Qed.
Example replace_same_class :
  let label (r : nat) := 0%nat in let leaf (r j : nat) := r in
  let t := tree 1 1 2 (fun _ => 1) nat label leaf in
  upto (fun i => Z.abs (vsub (t 0%nat) (t 1%nat) i)) (k (1 * 2) (2 ^ 1) 2) = 2.
Proof. vm_compute. reflexivity. Qed.

(* moment_tree.md, Lemma 1. A node holds the n integers a .. a + n - 1, so twice its centre is 2 a + n - 1. *)
Lemma centred : forall a n x w, a <= x <= a + n - 1 -> n <= w -> Z.abs (2 * x - (2 * a + n - 1)) <= w - 1.
Proof. intros. lia. Qed.

(* A record's value of order q in a node of at most w integers is at most u (w - 1)^q, and the first integer of a node
   attains it for that node's own n. *)
Theorem moment_bound : forall a n x w (q : nat) u, 0 <= u -> a <= x <= a + n - 1 -> n <= w ->
  Z.abs (u * (2 * x - (2 * a + n - 1)) ^ Z.of_nat q) <= u * (w - 1) ^ Z.of_nat q.
Proof. intros a n x w q u Hu Hx Hn. rewrite Z.abs_mul, Z.abs_pow, (Z.abs_eq u) by assumption.
  apply Z.mul_le_mono_nonneg_l; [assumption|]. apply Z.pow_le_mono_l. pose proof (centred a n x w Hx Hn). lia. Qed.
Theorem moment_attained : forall a n (q : nat) u, 0 <= u -> 1 <= n ->
  Z.abs (u * (2 * a - (2 * a + n - 1)) ^ Z.of_nat q) = u * (n - 1) ^ Z.of_nat q.
Proof. intros a n q u Hu Hn. rewrite Z.abs_mul, Z.abs_pow, (Z.abs_eq u) by assumption. do 2 f_equal. lia. Qed.

(* One block for each column, level and order; D is the bound of the block. *)
Theorem moment_tree_stability : forall (B W L : nat) R eq_dec (label : R -> nat) (at_ : R -> nat -> nat)
   (x a n : R -> nat -> Z) (w u : nat -> Z) (order : nat -> nat),
  (forall r, (label r < L)%nat) -> (forall r b, (b < B)%nat -> (at_ r b < W)%nat) ->
  (forall b, 0 <= u b /\ 1 <= w b) ->
  (forall r b, (b < B)%nat -> a r b <= x r b <= a r b + n r b - 1 /\ n r b <= w b) ->
  let val r b := u b * (2 * x r b - (2 * a r b + n r b - 1)) ^ Z.of_nat (order b) in
  let D b := u b * (w b - 1) ^ Z.of_nat (order b) in
  let f := feat B W L 0 R label at_ val in
  forall xs ys d, (distance R eq_dec xs ys <= d)%nat ->
  let v := vsub (total R f xs) (total R f ys) in
  upto (fun i => Z.abs (v i)) (k B W L) <= upto D B * Z.of_nat d /\
  dot (k B W L) v v <= upto (fun b => D b * D b) B * (Z.of_nat d * Z.of_nat d).
Proof. intros B W L R eq_dec label at_ x a n w u order Hl Ha Hu Hx val D f xs ys d Hd v.
  destruct (blocks_stability B W L 0 ltac:(lia) R eq_dec label at_ val D Hl Ha
    ltac:(intro b; unfold D; destruct (Hu b); apply Z.mul_nonneg_nonneg; [lia|apply Z.pow_nonneg; lia])
    ltac:(intros r b Hb; destruct (Hx r b Hb), (Hu b); apply moment_bound; lia) xs ys d Hd) as (A & C & _).
  fold f in A, C. fold v in A, C. rewrite Z.add_0_r in A, C. split; assumption. Qed.

(* threshold_sketch.md, Lemma 1. A record adds 1 or -1 to each of M thresholds of its class and w to the class's total: M
   blocks of one cell. *)
Section Threshold.
Variables M L : nat. Variable w : Z. Hypothesis w0 : 0 <= w.
Variable R : Type. Variable eq_dec : forall x y : R, {x = y} + {x <> y}.
Variable label : R -> nat. Variable sign : R -> nat -> bool.
Hypothesis Hl : forall r, (label r < L)%nat.
Definition plus_minus (b : bool) : Z := if b then 1 else -1.
Definition threshold (r : R) := feat M 1 L w R label (fun _ _ => 0%nat) (fun r t => plus_minus (sign r t)) r.
Notation K := (k M 1 L).
Lemma upto_const : forall c n, upto (fun _ => c) n = Z.of_nat n * c.
Proof. induction n; simpl upto; lia. Qed.

(* One record has L1 norm M + w and squared L2 norm M + w^2, exactly. *)
Theorem threshold_one_record : forall r, upto (fun i => Z.abs (threshold r i)) K = Z.of_nat M + w /\ dot K (threshold r) (threshold r) = Z.of_nat M + w * w.
Proof. intro r. unfold threshold. split.
  - rewrite feat_l1 by (first [lia | intros; lia | auto]). rewrite (upto_eq _ (fun _ => 1)) by (intro i; destruct (sign r i); reflexivity). rewrite upto_const. lia.
  - rewrite feat_l2 by (first [lia | intros; lia | auto]). rewrite (upto_eq _ (fun _ => 1)) by (intro i; destruct (sign r i); reflexivity). rewrite upto_const. lia. Qed.

(* At symmetric distance d, with L-infinity at most max(1, w) d. *)
Theorem threshold_stability : forall xs ys d, (distance R eq_dec xs ys <= d)%nat ->
  let v := vsub (total R threshold xs) (total R threshold ys) in let n := Z.of_nat d in
  upto (fun i => Z.abs (v i)) K <= (Z.of_nat M + w) * n /\ dot K v v <= (Z.of_nat M + w * w) * (n * n) /\
  forall i, (i < K)%nat -> Z.abs (v i) <= Z.max 1 w * n.
Proof. intros xs ys d Hd v n.
  destruct (blocks_stability M 1 L w w0 R eq_dec label (fun _ _ => 0%nat) (fun r t => plus_minus (sign r t)) (fun _ => 1)
     Hl ltac:(intros; cbv beta; lia) ltac:(intros; cbv beta; lia) ltac:(intros r b _; cbv beta; destruct (sign r b); simpl; lia) xs ys d Hd) as (A & B & C).
  fold threshold in A, B, C. rewrite upto_const in A. rewrite (upto_const (1 * 1)) in B.
  replace (Z.of_nat M * 1) with (Z.of_nat M) in A by lia. replace (Z.of_nat M * (1 * 1)) with (Z.of_nat M) in B by lia.
  split; [exact A|split; [exact B|]]. apply C; intros; lia. Qed.
End Threshold.

(* The sum of signs at a threshold is twice the number of records at or below it, less the number of records. *)
Theorem threshold_cumulative : forall (R : Type) (s : R -> bool) xs,
  fold_right (fun r z => plus_minus (s r) + z) 0 xs = 2 * Z.of_nat (length (filter s xs)) - Z.of_nat (length xs).
Proof. induction xs as [|x xs IH]; [reflexivity|]. cbn [fold_right filter]. rewrite IH. unfold plus_minus. destruct (s x); cbn [length]; lia. Qed.

(* threshold_sketch.md, Lemma 2, in units of half a step: twice the sum of distances to level i is N m + 2 (sum of G_t
   for t < i) - (sum of all G_t), G_t the sum of signs at threshold t. *)
Definition sg (l t : nat) : Z := if (l <=? t)%nat then 1 else -1.
Lemma prefix : forall l i, upto (sg l) i = if (i <=? l)%nat then - Z.of_nat i else Z.of_nat i - 2 * Z.of_nat l.
Proof. intros l. induction i as [|i IH]; [reflexivity|]. cbn [upto]. rewrite IH. unfold sg.
  destruct (Nat.leb_spec i l), (Nat.leb_spec (S i) l), (Nat.leb_spec l i); lia. Qed.
Lemma one_record : forall m l i, (l <= m)%nat -> (i <= m)%nat ->
  2 * Z.abs (Z.of_nat l - Z.of_nat i) = Z.of_nat m + 2 * upto (sg l) i - upto (sg l) m.
Proof. intros m l i Hl Hi. rewrite !prefix. destruct (Nat.leb_spec i l), (Nat.leb_spec m l); lia. Qed.
Fixpoint zlist (l : list Z) : Z := match l with [] => 0 | x :: r => x + zlist r end.
Theorem threshold_estimator : forall m i (levels : list nat), (i <= m)%nat -> Forall (fun l => (l <= m)%nat) levels ->
  let G t := zlist (map (fun l => sg l t) levels) in
  2 * zlist (map (fun l => Z.abs (Z.of_nat l - Z.of_nat i)) levels) = Z.of_nat (length levels) * Z.of_nat m + 2 * upto G i - upto G m.
Proof. intros m i levels Hi Hl. induction Hl as [|l ls Hl Hls IH].
  - cbn [map zlist length]. assert (E : forall n, upto (fun _ => 0) n = 0) by (induction n; simpl; lia). rewrite !E. lia.
  - cbn [map zlist length] in *. rewrite !(upto_plus (fun t => sg l t) (fun t => zlist (map (fun x => sg x t) ls))).
    pose proof (one_record m l i Hl Hi) as A. change (upto (fun t => sg l t)) with (upto (sg l)). cbv zeta in IH. lia. Qed.

(* distance_tree.md, Lemma 2. Of S grid values t lies in leaf floor(t M / S) of M. Where S <= M different values have
   different leaves; every leaf is in range; with r the remainder of t M by S, 2 r - (S - 1) is at most S - 1 in size. *)
Theorem leaves_apart : forall S M t t', 0 < S -> S <= M -> 0 <= t < t' -> t * M / S < t' * M / S.
Proof. intros S M t t' HS HM Ht. apply Z.lt_succ_r || idtac. assert (t * M / S + 1 <= t' * M / S); [|lia].
  replace (t * M / S + 1) with ((t * M + 1 * S) / S) by (rewrite Z.div_add by lia; reflexivity). apply Z.div_le_mono; [lia|nia]. Qed.

Theorem leaf_offset : forall S r, 0 <= r <= S - 1 -> Z.abs (2 * r - (S - 1)) <= S - 1. Proof. intros. lia. Qed.

Theorem leaf_in_range : forall S M t, 0 < S -> 0 < M -> 0 <= t < S -> 0 <= t * M / S < M.
Proof. intros S M t HS HM Ht. split; [apply Z.div_pos; nia|apply Z.div_lt_upper_bound; nia]. Qed.

(* moment_tree.md, after Lemma 1: moments of orders 1 and 2 about a parent's centre p from those about a child's centre
   c. *)
Theorem carried_1 : forall x c p, 2 * x - 2 * p = (2 * x - 2 * c) + (2 * c - 2 * p). Proof. intros; ring. Qed.
Theorem carried_2 : forall x c p, (2 * x - 2 * p) ^ 2 = (2 * c - 2 * p) ^ 2 + 2 * (2 * x - 2 * c) * (2 * c - 2 * p) + (2 * x - 2 * c) ^ 2. Proof. intros; ring. Qed.
