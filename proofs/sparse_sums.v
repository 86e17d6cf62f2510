(* Vectors with few cells that are not 0, their norms, and sums of such vectors over records: the common shape of the
   sketches. *)
Require Import ZArith List Permutation Lia.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance.
Open Scope Z_scope.

(* L2 without roots. A bound such as sqrt(R + w^2) is no integer, so the bound is on squares: |v|^2 <= C n^2 says |v| <=
   sqrt(C) n. *)
Definition Squared (k : nat) (C : Z) (v : vec) (n : Z) := 0 <= n /\ dot k v v <= C * (n * n).

Section Squared.
Variable k : nat. Variable C : Z. Hypothesis C0 : 0 <= C.
Lemma dot_pos : forall v, 0 <= dot k v v.
Proof. intro. apply upto_pos. intro. apply Z.square_nonneg. Qed.
Lemma dot_zero : forall u v, dot k u u = 0 -> dot k u v = 0.
Proof. intros u v. unfold dot. induction k as [|n IH]; simpl; intro H; [reflexivity|].
  assert (0 <= upto (fun i => u i * u i) n) by (apply upto_pos; intro; apply Z.square_nonneg).
  pose proof (Z.square_nonneg (u n)). assert (u n * u n = 0) by lia. assert (u n = 0) as -> by nia. rewrite IH by lia. lia. Qed.
Lemma dot_sym : forall u v, dot k u v = dot k v u.
Proof. intros. apply upto_eq. intro. ring. Qed.
Lemma cauchy_schwarz_scaled : forall u v m n, 0 <= m -> 0 <= n -> dot k u u <= C * (m * m) -> dot k v v <= C * (n * n) -> dot k u v <= C * (m * n).
Proof. intros u v m n Hm Hn Hu Hv.
  assert (0 <= n * n * dot k u u - 2 * m * n * dot k u v + m * m * dot k v v) as H.
  { replace (n * n * dot k u u - 2 * m * n * dot k u v + m * m * dot k v v)
      with (upto (fun i => (n * u i - m * v i) * (n * u i - m * v i)) k).
    - apply upto_pos. intro. apply Z.square_nonneg.
    - unfold dot. rewrite <- !upto_scale.
      rewrite (upto_eq _ (fun i => (n * n * (u i * u i) + m * m * (v i * v i)) + (- (2 * m * n)) * (u i * v i))) by (intro; ring).
      rewrite !upto_plus, !upto_scale. ring. }
  destruct (Z.eq_dec m 0) as [->|]; [|destruct (Z.eq_dec n 0) as [->|]].
  - pose proof (dot_pos u). rewrite dot_zero by nia. nia.
  - pose proof (dot_pos v). rewrite dot_sym, dot_zero by nia. nia.
  - assert (n * n * dot k u u <= n * n * (C * (m * m))) by (apply Z.mul_le_mono_nonneg_l; nia).
    assert (m * m * dot k v v <= m * m * (C * (n * n))) by (apply Z.mul_le_mono_nonneg_l; nia).
    assert (0 < m * n) by nia. apply (Z.mul_le_mono_pos_l _ _ (m * n)); [assumption|].
    assert (2 * m * n * dot k u v = 2 * (m * n * dot k u v)) as E1 by ring.
    assert (n * n * (C * (m * m)) = m * n * (C * (m * n))) as E2 by ring.
    assert (m * m * (C * (n * n)) = m * n * (C * (m * n))) as E3 by ring. lia. Qed.
Lemma squared_gauge : gauge (Squared k C).
Proof. unfold Squared; split; intros.
  - destruct H0. split; [assumption|]. unfold dot in *. rewrite <- (upto_eq (fun i => u i * u i)); [assumption|]. intro; rewrite H; reflexivity.
  - split; [lia|]. unfold dot, vzero. induction k; simpl in *; lia.
  - destruct H. split; [assumption|]. unfold dot, vneg in *. rewrite (upto_eq _ (fun i => u i * u i)); [assumption|]. intro; ring.
  - destruct H, H0. split; [lia|]. pose proof (cauchy_schwarz_scaled u v c d H H0 H1 H2).
    replace (dot k (vadd u v) (vadd u v)) with (dot k u u + 2 * dot k u v + dot k v v); [nia|].
    unfold dot, vadd. rewrite <- upto_scale, <- !upto_plus. apply upto_eq. intro; ring.
  - destruct H. split; [lia|]. assert (c * c <= d * d) by nia.
    assert (C * (c * c) <= C * (d * d)) by (apply Z.mul_le_mono_nonneg_l; assumption). lia. Qed.
End Squared.

(* If a record's vector has a squared length of at most C, sums at symmetric distance n differ by a squared length of at
   most C n^2. *)
Theorem squared_l2_sensitivity (k : nat) R eq_dec (f : R -> vec) C : 0 <= C -> (forall r, dot k (f r) (f r) <= C) ->
  forall xs ys n, (distance R eq_dec xs ys <= n)%nat ->
  dot k (vsub (total R f xs) (total R f ys)) (vsub (total R f xs) (total R f ys)) <= C * (Z.of_nat n * Z.of_nat n).
Proof. intros HC Hb xs ys n Hn.
  pose proof (sensitivity R eq_dec (Squared k C) (squared_gauge k C HC) f 1 ltac:(lia)) as S.
  destruct (S ltac:(intro; split; [lia|specialize (Hb r); lia]) xs ys n Hn) as [_ H]. nia. Qed.

(* A list of (cell, value) as a vector; asum adds a function of the values; cells are the cells named. *)
Fixpoint sparse (l : list (nat * Z)) : vec :=
  match l with [] => vzero | (p, a) :: r => fun i => if Nat.eqb i p then a else sparse r i end.
Definition asum (g : Z -> Z) (l : list (nat * Z)) := fold_right (fun e s => g (snd e) + s) 0 l.
Definition cells (l : list (nat * Z)) := map fst l.

Lemma sparse_out : forall l i, ~ In i (cells l) -> sparse l i = 0.
Proof. induction l as [|[p a] r IH]; simpl; intros i H; [reflexivity|].
  destruct (Nat.eqb_spec i p) as [->|]; [tauto|]. apply IH. tauto. Qed.
Lemma upto_eq_lt : forall g h n, (forall i, (i < n)%nat -> g i = h i) -> upto g n = upto h n.
Proof. induction n; simpl; intro H; [reflexivity|]. rewrite IHn by (intros; apply H; lia). rewrite H by lia. reflexivity. Qed.
Lemma upto_update : forall (g : Z -> Z) (v : nat -> Z) p a n, (p < n)%nat -> v p = 0 -> g 0 = 0 ->
  upto (fun i => g (if Nat.eqb i p then a else v i)) n = g a + upto (fun i => g (v i)) n.
Proof. intros g v p a n Hp Hv Hg. revert Hp. induction n as [|n IH]; simpl; intro Hp; [lia|].
  destruct (Nat.eqb_spec n p) as [->|Hne].
  - rewrite (upto_eq_lt _ (fun i => g (v i))).
    + rewrite Hv, Hg. lia.
    + intros i Hi. destruct (Nat.eqb_spec i p); [lia|reflexivity].
  - rewrite IH by lia. lia. Qed.
Lemma upto_sparse : forall g k l, g 0 = 0 -> NoDup (cells l) -> (forall p, In p (cells l) -> (p < k)%nat) ->
  upto (fun i => g (sparse l i)) k = asum g l.
Proof. induction l as [|[p a] r IH]; simpl; intros Hg Hn Hk.
  - unfold vzero. rewrite Hg. clear. induction k; simpl; lia.
  - apply NoDup_cons_iff in Hn. destruct Hn as [Hp Hn].
    rewrite (upto_update g (sparse r) p a k); auto using sparse_out. rewrite IH; auto. Qed.

Lemma sparse_values : forall l (P : Z -> Prop) i, P 0 -> (forall e, In e l -> P (snd e)) -> P (sparse l i).
Proof. induction l as [|[p a] r IH]; simpl; intros P i H0 H; [assumption|].
  destruct (Nat.eqb i p); [apply (H (p, a)); auto|]. apply IH; auto. Qed.
Lemma sparse_in : forall l p a, NoDup (cells l) -> In (p, a) l -> sparse l p = a.
Proof. induction l as [|[q b] r IH]; simpl; intros p a Hn H; [contradiction|].
  apply NoDup_cons_iff in Hn. destruct Hn as [Hq Hn]. destruct H as [E|H].
  - injection E as -> ->. rewrite Nat.eqb_refl. reflexivity.
  - destruct (Nat.eqb_spec p q) as [->|]; [|auto]. exfalso. apply Hq. apply (in_map fst) in H. exact H. Qed.

(* Where the cells named are different and inside the array, norms are sums over the list, whatever the layout. *)
Section Feature.
Variable k : nat. Variable l : list (nat * Z).
Hypothesis nodup : NoDup (cells l). Hypothesis inside : forall p, In p (cells l) -> (p < k)%nat.
Lemma norm_l1 : upto (fun i => Z.abs (sparse l i)) k = asum Z.abs l.
Proof. apply upto_sparse; auto. Qed.
Lemma norm_l2 : dot k (sparse l) (sparse l) = asum (fun z => z * z) l.
Proof. unfold dot. apply (upto_sparse (fun z => z * z)); auto. Qed.
End Feature.

(* n equal records add n times the vector of one. *)
Lemma total_repeat : forall R (f : R -> vec) r n i, total R f (repeat r n) i = Z.of_nat n * f r i.
Proof. induction n as [|n IH]; intro i; cbn [repeat total]; [unfold vzero; lia|]. unfold vadd. rewrite IH. lia. Qed.

(* A class has B blocks of W cells and one cell for its total; there are L classes. A record adds one value to one cell
   of each block of its class, and w to the total. *)
Section Blocks.
Variables B W L : nat.
Definition cell (y b i : nat) := ((y * B + b) * W + i)%nat.
Definition k := (L * B * W + L)%nat.
Definition entries (y : nat) (at_ : nat -> nat) (val : nat -> Z) (w : Z) : list (nat * Z) :=
  ((L * B * W + y)%nat, w) :: map (fun b => (cell y b (at_ b), val b)) (seq 0 B).

Lemma cell_bound : forall y b i, (y < L)%nat -> (b < B)%nat -> (i < W)%nat -> (cell y b i < L * B * W)%nat.
Proof. intros. unfold cell. assert (y * B + b < L * B)%nat by nia. nia. Qed.
Lemma cell_inj : forall y b i b' i', (i < W)%nat -> (i' < W)%nat -> cell y b i = cell y b' i' -> b = b' /\ i = i'.
Proof. unfold cell. intros y b i b' i' Hi Hi' E.
  assert ((y * B + b) = (y * B + b'))%nat as E1.
  { pose proof (Nat.div_add_l (y*B+b) W i ltac:(lia)) as A. pose proof (Nat.div_add_l (y*B+b') W i' ltac:(lia)) as A'.
    rewrite (Nat.div_small i W) in A by assumption. rewrite (Nat.div_small i' W) in A' by assumption. rewrite E in A. lia. }
  split; [lia|]. rewrite E1 in E. lia. Qed.
Lemma entries_nodup : forall y at_ val w, (y < L)%nat -> (forall b, (b < B)%nat -> (at_ b < W)%nat) -> NoDup (cells (entries y at_ val w)).
Proof. intros y at_ val w Hy Ha. unfold entries, cells. simpl. rewrite map_map. simpl. constructor.
  - rewrite in_map_iff. intros (b & E & Hb). apply in_seq in Hb. pose proof (cell_bound y b (at_ b) Hy ltac:(lia) (Ha b ltac:(lia))). lia.
  - assert (forall bs, NoDup bs -> (forall b, In b bs -> (b < B)%nat) -> NoDup (map (fun b => cell y b (at_ b)) bs)) as G.
    { induction bs as [|b bs IH]; simpl; intros Hn Hb; [constructor|]. apply NoDup_cons_iff in Hn. destruct Hn. constructor; [|apply IH; auto].
      rewrite in_map_iff. intros (b' & E & Hb'). apply cell_inj in E; [destruct E; subst; contradiction| |]; apply Ha; auto. }
    apply G; [apply seq_NoDup|]. intros b Hb. apply in_seq in Hb. lia. Qed.
Lemma entries_inside : forall y at_ val w, (y < L)%nat -> (forall b, (b < B)%nat -> (at_ b < W)%nat) ->
  forall p, In p (cells (entries y at_ val w)) -> (p < k)%nat.
Proof. intros y at_ val w Hy Ha p Hp. unfold k. unfold entries, cells in Hp. simpl in Hp. rewrite map_map in Hp. destruct Hp as [<-|Hp]; [lia|].
  apply in_map_iff in Hp. destruct Hp as (b & <- & Hb). apply in_seq in Hb. simpl.
  pose proof (cell_bound y b (at_ b) Hy ltac:(lia) (Ha b ltac:(lia))). lia. Qed.
Lemma asum_map : forall g (c : nat -> nat) (v : nat -> Z) n s, asum g (map (fun b => (c b, v b)) (seq s n)) = upto (fun b => g (v (s + b)%nat)) n.
Proof. intros g c v n. induction n as [|n IH]; intro s; [reflexivity|]. rewrite seq_S, map_app. unfold asum in *.
  rewrite fold_right_app. simpl. rewrite Z.add_0_r.
  assert (forall l z, fold_right (fun e t => g (snd e) + t) z l = fold_right (fun (e : nat * Z) t => g (snd e) + t) 0 l + z) as G
    by (induction l; simpl; intros; [lia|rewrite IHl; lia]).
  rewrite G, IH. lia. Qed.
End Blocks.
Lemma upto_le_lt : forall g h n, (forall i, (i < n)%nat -> g i <= h i) -> upto g n <= upto h n.
Proof. induction n; simpl; intro H; [lia|]. specialize (H n ltac:(lia)) as Hn. specialize (IHn ltac:(intros; apply H; lia)). lia. Qed.

(* The same with a value that depends on the record and is at most D b in block b. *)
Section General.
Variables B W L : nat. Variable w : Z. Hypothesis w0 : 0 <= w.
Variable R : Type. Variable eq_dec : forall x y : R, {x = y} + {x <> y}.
Variable label : R -> nat. Variable at_ : R -> nat -> nat. Variable val : R -> nat -> Z. Variable D : nat -> Z.
Hypothesis Hl : forall r, (label r < L)%nat. Hypothesis Hh : forall r b, (b < B)%nat -> (at_ r b < W)%nat.
Hypothesis D0 : forall b, 0 <= D b.
Hypothesis Hv : forall r b, (b < B)%nat -> Z.abs (val r b) <= D b.
Definition feat (r : R) := sparse (entries B W L (label r) (at_ r) (val r) w).
Notation K := (k B W L).
Lemma feat_l1 : forall r, upto (fun i => Z.abs (feat r i)) K = upto (fun b => Z.abs (val r b)) B + w.
Proof. intro r. unfold feat. rewrite norm_l1; [|apply entries_nodup; auto|apply entries_inside; auto].
  unfold entries. simpl. fold (asum Z.abs (map (fun b => (cell B W (label r) b (at_ r b), val r b)) (seq 0 B))).
  rewrite asum_map. simpl. lia. Qed.
Lemma feat_l2 : forall r, dot K (feat r) (feat r) = upto (fun b => val r b * val r b) B + w * w.
Proof. intro r. unfold feat. rewrite norm_l2; [|apply entries_nodup; auto|apply entries_inside; auto].
  unfold entries. simpl. fold (asum (fun z => z * z) (map (fun b => (cell B W (label r) b (at_ r b), val r b)) (seq 0 B))).
  rewrite asum_map. simpl. lia. Qed.
Lemma feat_inf : forall r m i, 0 <= m -> w <= m -> (forall b, (b < B)%nat -> D b <= m) -> Z.abs (feat r i) <= m.
Proof. intros r m i Hm Hw Hd. unfold feat. apply (sparse_values _ (fun z => Z.abs z <= m)); [lia|].
  intros e He. unfold entries in He. simpl in He. destruct He as [<-|He]; [simpl; lia|].
  apply in_map_iff in He. destruct He as (b & <- & Hb). apply in_seq in Hb. simpl.
  specialize (Hv r b ltac:(lia)). specialize (Hd b ltac:(lia)). lia. Qed.

(* At symmetric distance d: L1 at most (sum D + w) d, squared L2 at most (sum D^2 + w^2) d^2, L-infinity at most the
   largest of D and w, times d. *)
Theorem blocks_stability : forall xs ys d, (distance R eq_dec xs ys <= d)%nat ->
  let v := vsub (total R feat xs) (total R feat ys) in let n := Z.of_nat d in
  upto (fun i => Z.abs (v i)) K <= (upto D B + w) * n /\
  dot K v v <= (upto (fun b => D b * D b) B + w * w) * (n * n) /\
  forall m, 0 <= m -> w <= m -> (forall b, (b < B)%nat -> D b <= m) -> forall i, (i < K)%nat -> Z.abs (v i) <= m * n.
Proof. intros xs ys d Hd v n.

  assert (0 <= upto D B) by (apply upto_pos; assumption).
  assert (0 <= upto (fun b => D b * D b) B) by (apply upto_pos; intro b; specialize (D0 b); nia).
  split; [|split].
  - apply (l1_sensitivity K R eq_dec feat (upto D B + w)); [lia| |assumption]. intro r. unfold L1. rewrite feat_l1.
    assert (upto (fun b => Z.abs (val r b)) B <= upto D B) by (apply upto_le_lt; intros; apply Hv; assumption). lia.
  - apply (squared_l2_sensitivity K R eq_dec feat); [nia| |assumption]. intro r. rewrite feat_l2.
    assert (upto (fun b => val r b * val r b) B <= upto (fun b => D b * D b) B)
      by (apply upto_le_lt; intros; specialize (Hv r i H1); nia). lia.
  - intros m Hm Hw Hd'. apply (linf_sensitivity K R eq_dec feat m); [lia| |assumption]. intro r. split; [lia|]. intros i _.
    apply feat_inf; assumption. Qed.
End General.
