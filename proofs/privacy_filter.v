(* The filter of a purse for each record: privacy_filter.md. (A) Pure differential privacy with whole prices. (B) What
   goes wrong if the test is `not empty` and not `can pay`. (C) The integers of Lemmas 2 to 4. (D) Lemma 3 over a finite
   tree, in any ordered semiring, so also at every real order (real_orders.v). *)
Require Import QArith List Permutation Lia Lqa ZArith.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance sparse_sums differential_privacy.
Open Scope nat_scope.

(* (A) R are records (or persons), O answers; a full purse has U units, and a unit is the factor g. *)
Section Filter.
Open Scope Q_scope.
Variables R O : Type.
Variable U : nat.
Variable g : Q. Hypothesis g1 : 1 <= g.

(* What a record pays for the next question is a function of that record and of the answers so far, latest first; so is
   what is left in its purse. *)
Variable charge : R -> list O -> nat.
Fixpoint left (r : R) (p : list O) : nat := match p with [] => U | o :: q => left r q - charge r q end.

(* No purse is overdrawn. *)
Hypothesis can_pay : forall r p, (charge r p <= left r p)%nat.

(* The law of the next answer on the records D. One record more or less changes it by a factor of at most g^charge. *)
Variable law : list O -> list R -> O -> Q.
Hypothesis law_pos : forall p D o, 0 <= law p D o.
Hypothesis law_perm : forall p D D' o, Permutation D D' -> law p D o == law p D' o.
Hypothesis law_more : forall p r D o, law p (r :: D) o <= qpow g (charge r p) * law p D o.
Hypothesis law_less : forall p r D o, law p D o <= qpow g (charge r p) * law p (r :: D) o.
Notation inter D := (prob O (fun p => law p D)).

Lemma inter_pos : forall D t p, 0 <= inter D p t.
Proof. intros. apply prob_pos. intros q o. apply law_pos. Qed.
Lemma inter_perm : forall D D', Permutation D D' -> forall t p, inter D p t == inter D' p t.
Proof. intros D D' H. induction t as [|o t IH]; intro p; cbn [prob]; [reflexivity|]. rewrite IH, (law_perm p D D' o H). reflexivity. Qed.
Lemma spends : forall r t p, (price O (charge r) p t <= left r p)%nat.
Proof. intro r. induction t as [|o t IH]; intro p; cbn [price]; [lia|]. specialize (IH (o :: p)). cbn [left] in IH. specialize (can_pay r p). lia. Qed.

(* However many questions are asked, one record changes the chance of the answers by a factor of at most g^U; k records
   by g^(U k). *)
Theorem filter_one : forall r D t, inter (r :: D) [] t <= qpow g U * inter D [] t /\ inter D [] t <= qpow g U * inter (r :: D) [] t.
Proof. intros r D t. split; apply (adaptive_budget O (fun p => law p _) (fun p => law p _) g (charge r) U g1);
    try (intros p o; apply law_pos); try (apply (spends r t [])); intros p o; [apply law_more|apply law_less]. Qed.

Theorem filter_group : forall eqR xs ys, close (qpow (qpow g U) (distance R eqR xs ys)) (inter xs []) (inter ys []).
Proof. intros. apply (group_privacy R eqR (list O) (fun D => inter D [])).
  - apply qpow_pos. lra.
  - intros us vs P t. rewrite (inter_perm us vs P t []). lra.
  - intros us vs [r [P|P]] t; cbv beta.
    + rewrite (inter_perm _ _ P t []). apply filter_one.
    + rewrite (inter_perm _ _ P t []). apply filter_one. Qed.
End Filter.

(* A record takes part where it can pay, and else is left out: such charges never overdraw a purse, for any prices. *)
Section Drop.
Variables R O : Type. Variable U : nat. Variable price_of : R -> list O -> nat.
Fixpoint purse (r : R) (p : list O) : nat := match p with [] => U | o :: q => let u := purse r q in if price_of r q <=? u then u - price_of r q else u end.
Definition takes_part (r : R) (p : list O) : bool := price_of r p <=? purse r p.
Definition charged (r : R) (p : list O) : nat := if takes_part r p then price_of r p else 0.
Lemma purse_left : forall r p, purse r p = left R O U charged r p.
Proof. intros r p. induction p as [|o p IH]; cbn [purse left]; [reflexivity|]. rewrite <- IH. unfold charged, takes_part.
  destruct (price_of r p <=? purse r p); lia. Qed.
Theorem drop_can_pay : forall r p, charged r p <= left R O U charged r p.
Proof. intros. rewrite <- purse_left. unfold charged, takes_part. destruct (Nat.leb_spec (price_of r p) (purse r p)); lia. Qed.

Open Scope Q_scope.
Variable g : Q. Hypothesis g1 : 1 <= g.
Variable q : list O -> list R -> O -> Q.
Hypothesis q_pos : forall p D o, 0 <= q p D o. Hypothesis q_perm : forall p D D' o, Permutation D D' -> q p D o == q p D' o.
Hypothesis q_more : forall p r D o, q p (r :: D) o <= qpow g (price_of r p) * q p D o.
Hypothesis q_less : forall p r D o, q p D o <= qpow g (price_of r p) * q p (r :: D) o.
Definition service (p : list O) (D : list R) (o : O) : Q := q p (filter (fun r => takes_part r p) D) o.
Lemma filter_perm : forall f (D D' : list R), Permutation D D' -> Permutation (filter f D) (filter f D').
Proof. induction 1; simpl; auto; try (destruct (f x)); try (destruct (f y)); eauto using perm_skip, perm_swap, perm_trans. Qed.

(* So the service that answers from the records that take part is g^(U k) close for k records. *)
Theorem dropping_filter : forall eqR xs ys, close (qpow (qpow g U) (distance R eqR xs ys)) (prob O (fun p => service p xs) []) (prob O (fun p => service p ys) []).
Proof. intros. apply (filter_group R O U g g1 charged drop_can_pay service).
  - intros. apply q_pos.
  - intros p D D' o P. apply q_perm. apply filter_perm. assumption.
  - intros p r D o. unfold service, charged. cbn [filter]. destruct (takes_part r p); [apply q_more|]. cbn [qpow]. lra.
  - intros p r D o. unfold service, charged. cbn [filter]. destruct (takes_part r p); [apply q_less|]. cbn [qpow]. lra. Qed.
End Drop.

(* privacy_filter.md, Lemma 5: a person is a history, whose records at the time of a question are `now`; the purse is the
   person's, and goes on while there are no records (of cost 0). *)
Section Updates.
Variables S X O : Type. Variable now : S -> nat -> X. Variable U : nat. Variable cost : X -> list O -> nat.
Variable g : Q. Hypothesis g1 : (1 <= g)%Q. Open Scope Q_scope.
Variable q : list O -> list X -> O -> Q. Hypothesis q_pos : forall p D o, 0 <= q p D o.
Hypothesis q_perm : forall p D D' o, Permutation D D' -> q p D o == q p D' o.
Hypothesis q_more : forall p x D o, q p (x :: D) o <= qpow g (cost x p) * q p D o.
Hypothesis q_less : forall p x D o, q p D o <= qpow g (cost x p) * q p (x :: D) o.
Definition cost_now (s : S) (p : list O) : nat := cost (now s (length p)) p.
Definition records_now (p : list O) (D : list S) := map (fun s => now s (length p)) D.
Theorem updates : forall eqS xs ys, close (qpow (qpow g U) (distance S eqS xs ys))
  (prob O (fun p => service S O U cost_now (fun p D => q p (records_now p D)) p xs) []) (prob O (fun p => service S O U cost_now (fun p D => q p (records_now p D)) p ys) []).
Proof. intros. apply (dropping_filter S O U cost_now g g1 (fun p D => q p (records_now p D))).
  - intros. apply q_pos.
  - intros p D D' o P. apply q_perm. apply Permutation_map. assumption.
  - intros p r D o. apply q_more.
  - intros p r D o. apply q_less. Qed.
End Updates.

(* (B) ind_knn.md: with the test `not empty` a record may spend up to U + P - 1 units for prices of at most P, and that
   is attained. *)
Section NotEmpty.
Variable prices : list nat. Variable U P : nat. Hypothesis most : Forall (fun x => x <= P) prices.
Fixpoint run (l : list nat) (spent : nat) : nat := match l with [] => spent | x :: r => run r (if spent <? U then spent + x else spent) end.
Theorem nonempty_test_overspends : run prices 0 <= U + P - 1 \/ U = 0.
Proof. destruct (Nat.eq_dec U 0) as [->|H0]; [right; reflexivity|left].
  assert (G : forall l s, Forall (fun x => x <= P) l -> s <= U + P - 1 -> run l s <= U + P - 1).
  { induction l as [|x l IH]; intros s Hl Hs; cbn [run]; [assumption|]. inversion Hl; subst. apply IH; [assumption|]. destruct (Nat.ltb_spec s U); lia. }
  apply G; [assumption|lia]. Qed.
End NotEmpty.
Example nonempty_test_example : run 10 [9; 5] 0 = 14. Proof. reflexivity. Qed.
Example nonempty_test_attained : run 10 [9; 9] 0 = 10 + 9 - 1. Proof. reflexivity. Qed.

(* (C) vectors of n cells. *)
Section Squares.
Open Scope Z_scope.
Variable n : nat.
Fixpoint vsumv (l : list vec) : vec := match l with [] => vzero | v :: r => vadd v (vsumv r) end.
Fixpoint zsum (l : list Z) : Z := match l with [] => 0 | x :: r => x + zsum r end.
Lemma dot_vadd : forall u v, dot n (vadd u v) (vadd u v) = dot n u u + 2 * dot n u v + dot n v v.
Proof. intros. unfold dot, vadd. rewrite <- upto_scale, <- !upto_plus. apply upto_eq. intro. ring. Qed.

(* privacy_filter.md, Lemma 3: the squared length of a sum of k vectors is at most k times the sum of squared lengths. *)
Theorem cauchy_k : forall l, dot n (vsumv l) (vsumv l) <= Z.of_nat (length l) * zsum (map (fun v => dot n v v) l).
Proof. induction l as [|v l IH].
  - cbn [vsumv map zsum length]. unfold dot, vzero. clear. induction n; cbn [upto]; lia.
  - cbn [vsumv map zsum length]. rewrite dot_vadd. set (s := vsumv l) in *. set (z := zsum (map (fun v => dot n v v) l)) in *. set (k := length l) in *.

    pose proof (dot_pos n v) as Pv. pose proof (dot_pos n s) as Ps.
    destruct k as [|k'] eqn:Ek.
    + assert (dot n s s = 0) by lia. rewrite (dot_sym n v s), (dot_zero n s v) by assumption.
      assert (z = 0) by (unfold z; destruct l; [reflexivity|discriminate]). lia.
    + assert (0 <= (Z.of_nat (S k')) * (Z.of_nat (S k')) * dot n v v - 2 * Z.of_nat (S k') * dot n v s + dot n s s) as H.
      { replace (Z.of_nat (S k') * Z.of_nat (S k') * dot n v v - 2 * Z.of_nat (S k') * dot n v s + dot n s s)
          with (upto (fun i => (Z.of_nat (S k') * v i - s i) * (Z.of_nat (S k') * v i - s i)) n); [apply upto_pos; intro; apply Z.square_nonneg|].
        unfold dot. rewrite <- !upto_scale.
        rewrite (upto_eq _ (fun i => (Z.of_nat (S k') * Z.of_nat (S k') * (v i * v i) + s i * s i) + (- (2 * Z.of_nat (S k'))) * (v i * s i))) by (intro; ring).
        rewrite !upto_plus, !upto_scale. ring. }
      set (K := Z.of_nat (S k')) in *. assert (0 < K) by (unfold K; lia).
      replace (Z.of_nat (S (S k'))) with (K + 1) by (unfold K; lia).
      apply (Z.mul_le_mono_pos_l _ _ K); [assumption|].
      assert (K * dot n s s <= K * (K * z)) by (apply Z.mul_le_mono_nonneg_l; lia).
      assert (dot n s s <= K * z) by assumption. nia. Qed.

(* Lemma 3, the sum over releases: k persons who are each charged at most U lead to at most k^2 U. *)
Definition over (T : nat) (f : nat -> Z) := upto f T.
Theorem k_persons : forall (T : nat) (ps : list (nat -> vec)) (c : nat -> Z) (U : Z), (forall t, 0 <= c t) -> 0 <= U ->
  (forall v, In v ps -> over T (fun t => dot n (v t) (v t) * c t) <= U) ->
  over T (fun t => dot n (vsumv (map (fun v => v t) ps)) (vsumv (map (fun v => v t) ps)) * c t) <= Z.of_nat (length ps) * (Z.of_nat (length ps) * U).
Proof. intros T ps c U Hc HU Hp. set (k := Z.of_nat (length ps)).
  assert (A : over T (fun t => dot n (vsumv (map (fun v => v t) ps)) (vsumv (map (fun v => v t) ps)) * c t)
            <= over T (fun t => k * (zsum (map (fun v => dot n (v t) (v t) * c t) ps)))).
  { apply upto_le. intro t. pose proof (cauchy_k (map (fun v => v t) ps)) as H. rewrite map_length, map_map in H. fold k in H.
    assert (E : zsum (map (fun v => dot n (v t) (v t) * c t) ps) = zsum (map (fun v => dot n (v t) (v t)) ps) * c t).
    { clear. induction ps as [|v l IH]; [reflexivity|]. cbn [map zsum]. rewrite IH. ring. }
    rewrite E. specialize (Hc t). nia. }
  unfold over in *. rewrite upto_scale in A.
  assert (B : upto (fun t => zsum (map (fun v => dot n (v t) (v t) * c t) ps)) T <= k * U).
  { unfold k. clear A. clear k. induction ps as [|v l IH].
    - cbn [map zsum length]. clear. induction T; cbn [upto]; lia.
    - cbn [map zsum length]. rewrite (upto_plus (fun t => dot n (v t) (v t) * c t)). specialize (IH ltac:(intros; apply Hp; right; assumption)).
      specialize (Hp v (or_introl eq_refl)). nia. }
  assert (0 <= k) by (unfold k; lia). nia. Qed.

(* Lemma 4: vectors without negative cells. *)
Theorem changed_person : forall u v, (forall i, 0 <= u i) -> (forall i, 0 <= v i) -> dot n (vsub u v) (vsub u v) <= dot n u u + dot n v v.
Proof. intros u v Hu Hv. assert (0 <= dot n u v) by (apply upto_pos; intro i; specialize (Hu i); specialize (Hv i); nia).
  replace (dot n (vsub u v) (vsub u v)) with (dot n u u + (-2) * dot n u v + dot n v v); [lia|].
  unfold dot, vsub. rewrite <- upto_scale, <- !upto_plus. apply upto_eq. intro. ring. Qed.

(* Lemma 2: the root that the code takes is the largest distance that the purse can pay. *)
Theorem affordable : forall z c d, 0 <= z -> 0 < c -> 0 <= d -> (d <= Z.sqrt (z / c) <-> d * d * c <= z).
Proof. intros z c d Hz Hc Hd. assert (0 <= z / c) by (apply Z.div_pos; assumption). split; intro H1.
  - pose proof (Z.sqrt_spec (z / c) H) as [A _]. pose proof (Z.mul_div_le z c Hc). assert (d * d <= z / c) by nia. nia.
  - assert (d * d <= z / c) by (apply Z.div_le_lower_bound; lia). rewrite <- (Z.sqrt_square d Hd). apply Z.sqrt_le_mono. assumption. Qed.

(* ind_knn.md, Lemma 2: weights that are each at most D / (their number) add up to at most D. *)
Theorem clipped_contribution : forall (w : list Z) D, 0 <= D -> (forall x, In x w -> 0 <= x <= D / Z.of_nat (length w)) -> zsum w <= D.
Proof. intros w D HD Hw. destruct w as [|y w']; [simpl; lia|]. set (m := Z.of_nat (length (y :: w'))) in *.
  assert (0 < m) by (unfold m; simpl length; lia). pose proof (Z.mul_div_le D m H).
  assert (G : forall l, (forall x, In x l -> 0 <= x <= D / m) -> zsum l <= Z.of_nat (length l) * (D / m)).
  { induction l as [|x l IH]; intro Hl; [simpl; lia|]. cbn [zsum length]. specialize (IH ltac:(intros; apply Hl; right; assumption)).
    specialize (Hl x (or_introl eq_refl)). nia. }
  specialize (G _ Hw). fold m in G. lia. Qed.
End Squares.

(* (D) f p o stands for P(o|p)^a Q(o|p)^(1-a), G for the exponential of a (a - 1) units, C for the price of the next
   release, a function of the answers so far. That one release keeps its price is the hypothesis `step`. *)
Section Renyi.
Variable K : Type. Variables (zero one : K) (add mul : K -> K -> K) (le : K -> K -> Prop).
Hypothesis le_refl : forall x, le x x. Hypothesis le_trans : forall x y z, le x y -> le y z -> le x z.
Hypothesis add_le : forall a b c d, le a b -> le c d -> le (add a c) (add b d).
Hypothesis mul_le_l : forall a b c, le zero c -> le a b -> le (mul c a) (mul c b).
Hypothesis mul_le_r : forall a b c, le zero c -> le a b -> le (mul a c) (mul b c).
Hypothesis distr : forall a b c, le (add (mul a c) (mul b c)) (mul (add a b) c). Hypothesis mul_0 : forall c, le zero (mul zero c).
Variable O : Type. Variable outs : list O -> list O.
Variable f : list O -> O -> K. Hypothesis f_pos : forall p o, le zero (f p o).
Variable G : nat -> K. Hypothesis G_pos : forall n, le zero (G n). Hypothesis G_add : forall m n, le (mul (G m) (G n)) (G (m + n)).
Hypothesis G_one : forall n, le one (G n).
Variable C : list O -> nat. Variable B : nat.
Fixpoint rest (p : list O) : nat := match p with [] => B | o :: q => rest q - C q end.
Hypothesis within_budget : forall p, C p <= rest p.
Fixpoint ksum (h : O -> K) (l : list O) : K := match l with [] => zero | o :: r => add (h o) (ksum h r) end.
Hypothesis step : forall p, le (ksum (f p) (outs p)) (G (C p)).
Fixpoint moment (n : nat) (p : list O) : K := match n with 0 => one | S m => ksum (fun o => mul (f p o) (moment m (o :: p))) (outs p) end.
Lemma ksum_le : forall h k l, (forall o, le (h o) (k o)) -> le (ksum h l) (ksum k l).
Proof. intros h k l H. induction l as [|o l IH]; cbn [ksum]; auto. Qed.
Lemma ksum_scale : forall h c l, le (ksum (fun o => mul (h o) c) l) (mul (ksum h l) c).
Proof. intros h c l. induction l as [|o l IH]; cbn [ksum]; [apply mul_0|]. eapply le_trans; [|apply distr]. apply add_le; [apply le_refl|assumption]. Qed.
Theorem renyi_filter_from : forall n p, le (moment n p) (G (rest p)).
Proof. induction n as [|n IH]; intro p; cbn [moment]; [apply G_one|].
  apply (le_trans _ (ksum (fun o => mul (f p o) (G (rest p - C p))) (outs p))).
  - apply ksum_le. intro o. apply mul_le_l; [apply f_pos|]. apply (IH (o :: p)).
  - eapply le_trans; [apply ksum_scale|]. apply (le_trans _ (mul (G (C p)) (G (rest p - C p)))).
    + apply mul_le_r; [apply G_pos|apply step].
    + replace (G (rest p)) with (G (C p + (rest p - C p))) by (f_equal; specialize (within_budget p); lia). apply G_add. Qed.

(* Lemma 3, one person: the moment of every finite tree is at most G B, where no path costs more than B. *)
Theorem renyi_filter : forall n, le (moment n []) (G B).
Proof. intro n. apply (renyi_filter_from n []). Qed.
End Renyi.

(* Rational laws and whole orders a = b + 1. *)
Section WholeOrders.
Open Scope Q_scope.
Variable O : Type. Variable outs : list O -> list O. Variables P P' : list O -> O -> Q.
Hypothesis P0 : forall p o, 0 <= P p o. Hypothesis P'0 : forall p o, 0 < P' p o.
Variable b : nat. Variable h : Q. Hypothesis h1 : 1 <= h.
Definition ratio (x y : Q) : Q := qpow x (S b) * qpow (/ y) b.
Fixpoint transcripts (n : nat) (p : list O) : list (list O) := match n with 0%nat => [[]] | S m => flat_map (fun o => map (cons o) (transcripts m (o :: p))) (outs p) end.
Variable C : list O -> nat. Variable B : nat. Hypothesis within_budget : forall p, (C p <= rest O C B p)%nat.
Hypothesis one_release : forall p, qsum (fun o => ratio (P p o) (P' p o)) (outs p) <= qpow h (C p).
Lemma qpow_mul : forall x y n, qpow (x * y) n == qpow x n * qpow y n.
Proof. induction n; cbn [qpow]; [ring|]. rewrite IHn. ring. Qed.
Lemma qpow_eq : forall x y n, x == y -> qpow x n == qpow y n.
Proof. induction n; intro E; cbn [qpow]; [reflexivity|]. rewrite IHn, E by assumption. reflexivity. Qed.
Lemma ratio_mul : forall x y u v, 0 < y -> 0 < v -> ratio (x * u) (y * v) == ratio x y * ratio u v.
Proof. intros. unfold ratio. rewrite qpow_mul. rewrite (qpow_eq (/ (y * v)) (/ y * / v)) by (field; split; lra). rewrite qpow_mul. ring. Qed.
Lemma ratio_pos : forall x y, 0 <= x -> 0 < y -> 0 <= ratio x y.
Proof. intros. unfold ratio. apply Qmult_le_0_compat; apply qpow_pos; [assumption|]. apply Qlt_le_weak, Qinv_lt_0_compat. assumption. Qed.
Lemma prob_lt : forall t p, 0 < prob O P' p t.
Proof. induction t as [|o t IH]; intro p; cbn [prob]; [lra|]. specialize (IH (o :: p)). specialize (P'0 p o). nra. Qed.
Lemma qsum_app : forall A (f : A -> Q) l m, qsum f (l ++ m) == qsum f l + qsum f m.
Proof. intros. induction l as [|x l IH]; cbn [qsum app]; [ring|]. rewrite IH. ring. Qed.
Lemma qsum_scale : forall A (f g : A -> Q) k l, (forall x, f x == k * g x) -> qsum f l == k * qsum g l.
Proof. intros A f g k l H. induction l as [|x l IH]; cbn [qsum]; [ring|]. rewrite IH, H. ring. Qed.
Lemma qsum_map : forall A D (f : D -> Q) (g : A -> D) l, qsum f (map g l) == qsum (fun x => f (g x)) l.
Proof. intros. induction l as [|x l IH]; cbn [qsum map]; [reflexivity|]. rewrite IH. reflexivity. Qed.

(* The moment of the tree is the sum over whole sequences of answers. *)
Lemma moment_is : forall n p, moment Q 0 1 Qplus Qmult O outs (fun p o => ratio (P p o) (P' p o)) n p
   == qsum (fun t => ratio (prob O P p t) (prob O P' p t)) (transcripts n p).
Proof. induction n as [|n IH]; intro p.
  - cbn [moment transcripts qsum prob]. unfold ratio. assert (E : forall k, qpow 1 k == 1) by (induction k; cbn [qpow]; [reflexivity|rewrite IHk; ring]).
    assert (F : qpow (/ 1) b == 1) by (rewrite (qpow_eq (/1) 1 b) by reflexivity; apply E). rewrite E, F. ring.
  - cbn [moment transcripts]. generalize (outs p). induction l as [|o l IHl]; cbn [ksum flat_map]; [reflexivity|].
    rewrite qsum_app, <- IHl, IH, qsum_map. apply Qplus_comp; [|reflexivity]. symmetry. apply qsum_scale. intro t. cbn [prob].
    apply ratio_mul; [apply P'0|apply prob_lt]. Qed.

(* Lemma 3 at whole orders: the a-th moment of the likelihood ratio of whole sequences is at most h^B. *)
Theorem renyi_whole_order : forall n, qsum (fun t => ratio (prob O P [] t) (prob O P' [] t)) (transcripts n []) <= qpow h B.
Proof. intro n. rewrite <- moment_is.
  apply (renyi_filter Q 0 1 Qplus Qmult Qle Qle_refl Qle_trans) with (C := C) (G := qpow h); try assumption.
  - intros. lra.
  - intros. nra.
  - intros. nra.
  - intros. lra.
  - intros. lra.
  - intros p o. apply ratio_pos; auto.
  - intro k. apply qpow_pos. lra.
  - intros k j. rewrite qpow_add. lra.
  - intro k. apply qpow_one. assumption.
  - intro p. specialize (one_release p). assert (E : forall l, ksum Q 0 Qplus O (fun o => ratio (P p o) (P' p o)) l = qsum (fun o => ratio (P p o) (P' p o)) l)
      by (induction l; cbn [ksum qsum]; congruence). rewrite E. assumption. Qed.
End WholeOrders.
