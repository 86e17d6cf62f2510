(* RACE: race_sketch.md, Lemma 1, and with w = 0 paired_projections.md, Lemma 1. A record has a class and a hash value in
   each of Rep repetitions. It adds 1 to the cell of its hash value in each repetition of its class, and w to its class's
   total. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance sparse_sums.
Open Scope Z_scope.

Section Race.
Variables Rep W L : nat. Variable w : Z. Hypothesis w0 : 0 <= w. Hypothesis Rep1 : (1 <= Rep)%nat.
Variable R : Type. Variable eq_dec : forall x y : R, {x = y} + {x <> y}.
Variable label : R -> nat. Variable hash : R -> nat -> nat.
Hypothesis Hl : forall r, (label r < L)%nat. Hypothesis Hh : forall r b, (b < Rep)%nat -> (hash r b < W)%nat.
Definition race (r : R) := sparse (entries Rep W L (label r) (hash r) (fun _ => 1) w).
Notation K := (k Rep W L).
Lemma one_each : forall (g : Z -> Z) n, upto (fun _ => g 1) n = Z.of_nat n * g 1.
Proof. induction n; simpl upto; lia. Qed.
Lemma race_l1 : forall r, upto (fun i => Z.abs (race r i)) K = Z.of_nat Rep + w.
Proof. intro r. unfold race. rewrite norm_l1; [|apply entries_nodup; auto|apply entries_inside; auto].
  unfold entries. simpl. fold (asum Z.abs (map (fun b => (cell Rep W (label r) b (hash r b), (fun _ : nat => 1) b)) (seq 0 Rep))).
  rewrite asum_map. rewrite (one_each Z.abs). simpl Z.abs. lia. Qed.
Lemma race_l2 : forall r, dot K (race r) (race r) = Z.of_nat Rep + w * w.
Proof. intro r. unfold race. rewrite norm_l2; [|apply entries_nodup; auto|apply entries_inside; auto].
  unfold entries. simpl. fold (asum (fun z => z * z) (map (fun b => (cell Rep W (label r) b (hash r b), (fun _ : nat => 1) b)) (seq 0 Rep))).
  rewrite asum_map. rewrite (one_each (fun z => z * z)). lia. Qed.
Lemma race_cell : forall r i, 0 <= race r i <= Z.max 1 w.
Proof. intros r i. unfold race. apply (sparse_values _ (fun z => 0 <= z <= Z.max 1 w)); [lia|].
  intros e He. unfold entries in He. simpl in He. destruct He as [<-|He]; [simpl; lia|].
  apply in_map_iff in He. destruct He as (b & <- & _). simpl. lia. Qed.
Lemma race_attains : forall r, (exists i, (i < K)%nat /\ race r i = 1) /\ (exists i, (i < K)%nat /\ race r i = w).
Proof. intro r. pose proof (entries_nodup Rep W L (label r) (hash r) (fun _ => 1) w (Hl r) (Hh r)) as Hn.
  pose proof (entries_inside Rep W L (label r) (hash r) (fun _ => 1) w (Hl r) (Hh r)) as Hk. split.
  - exists (cell Rep W (label r) 0 (hash r 0)).
    assert (In (cell Rep W (label r) 0 (hash r 0), 1) (entries Rep W L (label r) (hash r) (fun _ => 1) w)) as Hi.
    { right. apply in_map_iff. exists 0%nat. split; [reflexivity|apply in_seq; lia]. }
    split; [apply Hk; apply (in_map fst) in Hi; exact Hi|apply sparse_in; assumption].
  - exists (L * Rep * W + label r)%nat. split; [apply Hk; left; reflexivity|apply sparse_in; [assumption|left; reflexivity]]. Qed.

(* At symmetric distance d: L1 at most (Rep + w) d, squared L2 at most (Rep + w^2) d^2, L-infinity at most max(1, w) d,
   for any classes. *)
Theorem race_stability : forall xs ys d, (distance R eq_dec xs ys <= d)%nat ->
  let v := vsub (total R race xs) (total R race ys) in let n := Z.of_nat d in
  upto (fun i => Z.abs (v i)) K <= (Z.of_nat Rep + w) * n /\
  dot K v v <= (Z.of_nat Rep + w * w) * (n * n) /\
  forall i, (i < K)%nat -> Z.abs (v i) <= Z.max 1 w * n.
Proof. intros xs ys d Hd v n. split; [|split].
  - apply (l1_sensitivity K R eq_dec race (Z.of_nat Rep + w)); [lia| |assumption]. intro r. unfold L1. rewrite race_l1. lia.
  - apply (squared_l2_sensitivity K R eq_dec race); [nia| |assumption]. intro r. rewrite race_l2. lia.
  - apply (linf_sensitivity K R eq_dec race (Z.max 1 w)); [lia| |assumption]. intro r. split; [lia|]. intros i _.
    pose proof (race_cell r i). lia. Qed.

(* d equal records against none attain all three. *)
Theorem race_tight : forall r d, distance R eq_dec (repeat r d) [] = d /\
  let v := vsub (total R race (repeat r d)) (total R race []) in let n := Z.of_nat d in
  upto (fun i => Z.abs (v i)) K = (Z.of_nat Rep + w) * n /\ dot K v v = (Z.of_nat Rep + w * w) * (n * n) /\
  exists i, (i < K)%nat /\ Z.abs (v i) = Z.max 1 w * n.
Proof. intros r d. split.
  { rewrite distance_symmetric. simpl. apply repeat_length. }
  intros v n. assert (E : forall i, v i = n * race r i) by (intro i; unfold v, vsub; rewrite total_repeat; simpl; unfold vzero; lia).
  split; [|split].
  - rewrite (upto_eq _ (fun i => n * Z.abs (race r i))) by (intro i; rewrite E; nia). rewrite upto_scale, race_l1. lia.
  - unfold dot. rewrite (upto_eq _ (fun i => (n * n) * (race r i * race r i))) by (intro i; rewrite E; ring).
    rewrite upto_scale. pose proof (race_l2 r) as H. unfold dot in H. rewrite H. lia.
  - destruct (race_attains r) as [(i & Hi & Ei) (j & Hj & Ej)]. destruct (Z.le_gt_cases w 1).
    + exists i. rewrite E, Ei. split; [assumption|nia].
    + exists j. rewrite E, Ej. split; [assumption|nia]. Qed.

(* One more record moves no cell down. *)
Theorem race_monotone : forall r xs i, total R race xs i <= total R race (r :: xs) i.
Proof. intros. cbn [total]. unfold vadd. pose proof (race_cell r i). lia. Qed.
End Race.
