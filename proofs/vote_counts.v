(* vote_counts.md, Lemma 1, by users and by rows; peel.md, Lemma 0; and the clamping of choose_k.md. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance sparse_sums.
Open Scope Z_scope.

(* By users: a user is a list of different items of a catalogue of m, at most c of them. *)
Section Users.
Variables m c : nat.
Variable U : Type. Variable eqU : forall x y : U, {x = y} + {x <> y}.
Variable kept : U -> list nat.
Hypothesis different : forall u, NoDup (kept u). Hypothesis catalogue : forall u i, In i (kept u) -> (i < m)%nat.
Hypothesis bound : forall u, (length (kept u) <= c)%nat.
Definition votes (u : U) := sparse (map (fun i => (i, 1)) (kept u)).
Lemma vcells : forall u, cells (map (fun i => (i, 1)) (kept u)) = kept u.
Proof. intro. unfold cells. rewrite map_map. simpl. apply map_id. Qed.
Lemma vsum1 : forall (g : Z -> Z) l, asum g (map (fun i : nat => (i, 1)) l) = Z.of_nat (length l) * g 1.
Proof. induction l as [|x l IH]; [simpl; lia|]. cbn [map asum fold_right snd length]. unfold asum in IH. rewrite IH. lia. Qed.
Lemma vote_01 : forall u i, 0 <= votes u i <= 1.
Proof. intros. unfold votes. apply (sparse_values _ (fun z => 0 <= z <= 1)); [lia|]. intros e He. apply in_map_iff in He. destruct He as (x & <- & _). simpl. lia. Qed.

(* For d users: L1 at most c d, squared L2 at most c d^2, L-infinity at most d. *)
Theorem votes_users : forall xs ys d, (distance U eqU xs ys <= d)%nat ->
  let v := vsub (total U votes xs) (total U votes ys) in let n := Z.of_nat d in
  upto (fun i => Z.abs (v i)) m <= Z.of_nat c * n /\ dot m v v <= Z.of_nat c * (n * n) /\ forall i, (i < m)%nat -> Z.abs (v i) <= 1 * n.
Proof. intros xs ys d Hd v n.
  assert (I : forall u p, In p (cells (map (fun i => (i, 1)) (kept u))) -> (p < m)%nat) by (intros u p; rewrite vcells; apply catalogue).
  assert (N : forall u, NoDup (cells (map (fun i => (i, 1)) (kept u)))) by (intro u; rewrite vcells; apply different).
  split; [|split].
  - apply (l1_sensitivity m U eqU votes (Z.of_nat c)); [lia| |assumption]. intro u. unfold L1, votes.
    rewrite norm_l1 by eauto. rewrite (vsum1 Z.abs). specialize (bound u). simpl Z.abs. lia.
  - apply (squared_l2_sensitivity m U eqU votes); [lia| |assumption]. intro u. unfold votes.
    rewrite norm_l2 by eauto. rewrite (vsum1 (fun z => z * z)). specialize (bound u). lia.
  - apply (linf_sensitivity m U eqU votes 1); [lia| |assumption]. intro u. split; [lia|]. intros i _. pose proof (vote_01 u i). lia. Qed.

(* One more user moves each count up by 0 or 1. *)
Theorem votes_monotone : forall u xs i, total U votes xs i <= total U votes (u :: xs) i <= total U votes xs i + 1.
Proof. intros. cbn [total]. unfold vadd. pose proof (vote_01 u i). lia. Qed.

(* The sum of these vectors is the number of users who kept the item. *)
Theorem votes_count : forall xs i, total U votes xs i = Z.of_nat (length (filter (fun u => if in_dec Nat.eq_dec i (kept u) then true else false) xs)).
Proof. induction xs as [|u xs IH]; intro i; [reflexivity|]. cbn [total filter]. unfold vadd. rewrite IH. unfold votes at 1.
  destruct (in_dec Nat.eq_dec i (kept u)) as [H|H].
  - rewrite (sparse_in _ i 1); [cbn [length]; lia|rewrite vcells; apply different|]. apply in_map_iff. exists i. split; [reflexivity|assumption].
  - rewrite sparse_out; [lia|]. rewrite vcells. assumption. Qed.
End Users.

(* By rows, with a user column: a count is the number of different pairs (user, item). That is no sum over rows, so the
   bound goes along chains of neighbours. *)
Section ByRows.
Variable User : Type. Variable eqP : forall x y : User * nat, {x = y} + {x <> y}.
Definition row := (User * nat)%type.
Definition has (i : nat) (p : row) := Nat.eqb (snd p) i.
Definition count (xs : list row) (i : nat) : Z := Z.of_nat (length (filter (has i) (nodup eqP xs))).
Lemma filter_perm : forall (q : row -> bool) xs ys, Permutation xs ys -> length (filter q xs) = length (filter q ys).
Proof. intros q xs ys H. induction H; simpl; try congruence; repeat match goal with |- context [q ?z] => destruct (q z) end; simpl; congruence. Qed.
Lemma count_perm : forall xs ys i, Permutation xs ys -> count xs i = count ys i.
Proof. intros xs ys i H. unfold count. f_equal. apply filter_perm. apply NoDup_Permutation; try apply NoDup_nodup.
  intro x. rewrite !nodup_In. split; apply Permutation_in; [assumption|symmetry; assumption]. Qed.
Lemma count_cons : forall x xs i, count (x :: xs) i = count xs i + (if in_dec eqP x xs then 0 else if has i x then 1 else 0).
Proof. intros. unfold count. simpl nodup. destruct (in_dec eqP x xs); [lia|]. simpl. destruct (has i x); cbn [length]; lia. Qed.
Definition l1 (m : nat) (xs ys : list row) := upto (fun i => Z.abs (count xs i - count ys i)) m.
Lemma upto_ext_lt : forall g h n, (forall i, (i < n)%nat -> g i = h i) -> upto g n = upto h n.
Proof. induction n; simpl; intro H; [reflexivity|]. rewrite IHn by (intros; apply H; lia). rewrite H by lia. reflexivity. Qed.
Lemma upto_delta : forall j m, 0 <= upto (fun i => if Nat.eqb j i then 1 else 0) m <= 1.
Proof. intros j m. assert (A : forall m, (m <= j)%nat -> upto (fun i => if Nat.eqb j i then 1 else 0) m = 0).
  { clear m. induction m as [|m IH]; simpl; intro H; [reflexivity|]. rewrite IH by lia. destruct (Nat.eqb_spec j m); lia. }
  induction m as [|m IH]; simpl; [lia|]. destruct (Nat.eqb_spec j m).
  - subst. rewrite A by lia. lia.
  - destruct (Nat.le_gt_cases m j); [rewrite A by lia; lia|].
    lia. Qed.
Lemma l1_one : forall m x xs, l1 m (x :: xs) xs <= 1.
Proof. intros. unfold l1. rewrite (upto_eq _ (fun i => if in_dec eqP x xs then 0 else if Nat.eqb (snd x) i then 1 else 0)).
  - destruct (in_dec eqP x xs).
    + clear. induction m; simpl; lia.
    + apply upto_delta.
  - intro i. rewrite count_cons. unfold has. destruct (in_dec eqP x xs); [lia|]. destruct (Nat.eqb (snd x) i); lia. Qed.

(* For n rows: L1 at most n, squared L2 at most n^2, L-infinity at most n. *)
Theorem votes_rows : forall m xs ys n, (distance row eqP xs ys <= n)%nat ->
  upto (fun i => Z.abs (count xs i - count ys i)) m <= 1 * Z.of_nat n /\
  upto (fun i => (count xs i - count ys i) * (count xs i - count ys i)) m <= Z.of_nat n * Z.of_nat n /\
  forall i, (i < m)%nat -> Z.abs (count xs i - count ys i) <= Z.of_nat n.
Proof. intros m xs ys n Hn.
  assert (A : l1 m xs ys <= 1 * Z.of_nat n).
  { apply (group_additive row eqP (l1 m) 1); [lia| | | |assumption].
    - intros us vs P. unfold l1. rewrite (upto_eq _ (fun _ => 0)) by (intro i; rewrite (count_perm _ _ i P); lia). clear. induction m; simpl; lia.
    - intros us vs ws. unfold l1. rewrite <- upto_plus. apply upto_le. intro i. lia.
    - intros us vs [x [P|P]]; unfold l1.
      + rewrite (upto_eq _ (fun i => Z.abs (count (x :: vs) i - count vs i))) by (intro i; rewrite (count_perm _ _ i P); reflexivity). apply l1_one.
      + rewrite (upto_eq _ (fun i => Z.abs (count (x :: us) i - count us i))) by (intro i; rewrite (count_perm _ _ i P); lia). apply l1_one. }
  unfold l1 in A.
  assert (B : forall g k, upto (fun i => g i * g i) k <= upto (fun i => Z.abs (g i)) k * upto (fun i => Z.abs (g i)) k
                          /\ 0 <= upto (fun i => Z.abs (g i)) k /\ forall i, (i < k)%nat -> Z.abs (g i) <= upto (fun i => Z.abs (g i)) k).
  { intros g. induction k as [|k IH]; simpl; [split; [lia|split; [lia|intros; lia]]|]. destruct IH as (I1 & I2 & I3).
    rewrite <- (Z.abs_square (g k)). split; [nia|split; [lia|]]. intros i Hi. destruct (Nat.eq_dec i k) as [->|]; [lia|]. specialize (I3 i ltac:(lia)). lia. }
  destruct (B (fun i => count xs i - count ys i) m) as (B1 & B2 & B3). split; [exact A|split].
  - nia.
  - intros i Hi. specialize (B3 i Hi). cbv beta in B3. lia. Qed.
Theorem votes_rows_monotone : forall x xs i, count xs i <= count (x :: xs) i <= count xs i + 1.
Proof. intros. rewrite count_cons. destruct (in_dec eqP x xs); [lia|]. destruct (has i x); lia. Qed.
End ByRows.

(* Counts at a distance of a + b users: a steps up and b steps down in any order, each of which moves every count by 0 or
   1. *)
Definition counts := nat -> Z.
Definition up (h h' : counts) := forall i, h i <= h' i <= h i + 1.
Inductive path : nat -> nat -> counts -> counts -> Prop :=
| p_end : forall h h', (forall i, h i = h' i) -> path 0 0 h h'
| p_up : forall a b h g h', up h g -> path a b g h' -> path (S a) b h h'
| p_down : forall a b h g h', up g h -> path a b g h' -> path a (S b) h h'.

(* Such a path moves every count by at least -b and at most a, and any two vectors with such differences have such a
   path. *)
Theorem path_range : forall a b h h', path a b h h' -> forall i, - Z.of_nat b <= h' i - h i <= Z.of_nat a.
Proof. induction 1; intro i; [specialize (H i); lia|specialize (H i); specialize (IHpath i); lia|specialize (H i); specialize (IHpath i); lia]. Qed.

Theorem path_exists : forall a b h h', (forall i, - Z.of_nat b <= h' i - h i <= Z.of_nat a) -> path a b h h'.
Proof. induction a as [|a IH]; intros b h h' H.
  - revert h H. induction b as [|b IHb]; intros h H.
    + constructor. intro i. specialize (H i). lia.
    + apply (p_down _ _ _ (fun i => if h' i <? h i then h i - 1 else h i)).
      * intro i. destruct (Z.ltb_spec (h' i) (h i)); lia.
      * apply IHb. intro i. specialize (H i). destruct (Z.ltb_spec (h' i) (h i)); lia.
  - apply (p_up _ _ _ (fun i => if h i <? h' i then h i + 1 else h i)).
    + intro i. destruct (Z.ltb_spec (h i) (h' i)); lia.
    + apply IH. intro i. specialize (H i). destruct (Z.ltb_spec (h i) (h' i)); lia. Qed.

(* peel.md, Lemma 0: the largest and the least change differ by at most a + b. *)
Corollary peel_range : forall a b h h', path a b h h' -> forall i j, (h' i - h i) - (h' j - h j) <= Z.of_nat (a + b).
Proof. intros a b h h' P i j. pose proof (path_range _ _ _ _ P i). pose proof (path_range _ _ _ _ P j). lia. Qed.

(* choose_k.md: clamping counts to an interval does not make a path longer. *)
Definition clampZ lo hi z := Z.max lo (Z.min hi z).
Theorem clamp_path : forall a b h h' lo hi, lo <= hi -> path a b h h' -> path a b (fun i => clampZ lo hi (h i)) (fun i => clampZ lo hi (h' i)).
Proof. intros a b h h' lo hi Hb P. apply path_exists. intro i. pose proof (path_range _ _ _ _ P i). unfold clampZ. lia. Qed.
