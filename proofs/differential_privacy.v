(* Differential privacy of finite outputs in rational numbers: a factor c stands for e^eps. Events, post-processing,
   adaptive composition to any finite depth, group privacy, parallel composition, a stable map before a mechanism,
   bounded range, and group privacy with delta. That probabilities add up to 1 is never used. *)
Require Import QArith List Permutation Lia Lqa ZArith.
Import ListNotations.
From Proofs Require Import sensitivity dataset_distance row_maps.
Open Scope Q_scope.

Definition close {O} (c : Q) (P P' : O -> Q) := forall o, P o <= c * P' o.
Definition pos {O} (P : O -> Q) := forall o, 0 <= P o.
Fixpoint qsum {O} (P : O -> Q) (E : list O) : Q := match E with [] => 0 | o :: r => P o + qsum P r end.
Fixpoint qpow (c : Q) (n : nat) : Q := match n with O => 1 | S m => c * qpow c m end.

Lemma qpow_pos : forall c n, 0 <= c -> 0 <= qpow c n.
Proof. induction n; intro H; cbn [qpow]; [lra|]. apply Qmult_le_0_compat; auto. Qed.
Lemma qpow_add : forall c m n, qpow c (m + n) == qpow c m * qpow c n.
Proof. induction m; intro n; cbn [qpow plus]; [lra|]. rewrite IHm. ring. Qed.
Lemma qpow_one : forall c n, 1 <= c -> 1 <= qpow c n.
Proof. induction n; intro H; cbn [qpow]; [lra|]. specialize (IHn H). nra. Qed.
Lemma qpow_mono : forall c m n, 1 <= c -> (m <= n)%nat -> qpow c m <= qpow c n.
Proof. intros c m n H L. replace n with (m + (n - m))%nat by lia. rewrite qpow_add.
  pose proof (qpow_one c (n - m) H). pose proof (qpow_pos c m ltac:(lra)). nra. Qed.
Lemma mul_le : forall a b x y, 0 <= a -> 0 <= x -> a <= b -> x <= y -> a * x <= b * y.
Proof. intros. nra. Qed.

(* A bound on every single output is a bound on every finite event. *)
Theorem events : forall O c (P P' : O -> Q), close c P P' -> forall E, qsum P E <= c * qsum P' E.
Proof. intros O c P P' H E. induction E as [|o E IH]; cbn [qsum]; [lra|]. specialize (H o). lra. Qed.

(* Post-processing: the law of f(o); then also for a random function that does not read the data. *)
Definition image {O O'} (eqO : forall x y : O', {x = y} + {x <> y}) (outs : list O) (f : O -> O') (P : O -> Q) : O' -> Q :=
  fun r => qsum P (filter (fun o => if eqO (f o) r then true else false) outs).
Theorem post_processing : forall O O' eqO outs (f : O -> O') c P P', close c P P' -> close c (image eqO outs f P) (image eqO outs f P').
Proof. intros. intro r. apply events. assumption. Qed.

Theorem random_post_processing : forall O O' outs (K : O -> O' -> Q) c (P P' : O -> Q), (forall o r, 0 <= K o r) -> close c P P' ->
  close c (fun r => qsum (fun o => P o * K o r) outs) (fun r => qsum (fun o => P' o * K o r) outs).
Proof. intros O O' outs K c P P' HK H r. apply (events O c (fun o => P o * K o r) (fun o => P' o * K o r)).
  intro o. specialize (H o). specialize (HK o r). nra. Qed.

(* Adaptive composition: the law of the next answer given the answers so far, latest first. *)
Section Adaptive.
Variable O : Type.
Definition inter := list O -> O -> Q.
Fixpoint prob (s : inter) (past : list O) (t : list O) : Q := match t with [] => 1 | o :: r => s past o * prob s (o :: past) r end.
Lemma prob_pos : forall s, (forall p, pos (s p)) -> forall t p, 0 <= prob s p t.
Proof. intros s H. induction t as [|o t IH]; intro p; cbn [prob]; [lra|]. apply Qmult_le_0_compat; [apply H|apply IH]. Qed.

(* The factor of a step may depend on the answers so far. *)
Fixpoint product (c : list O -> Q) (past : list O) (t : list O) : Q := match t with [] => 1 | o :: r => c past * product c (o :: past) r end.
Theorem adaptive : forall s s' c, (forall p, pos (s p)) -> (forall p, pos (s' p)) -> (forall p, 0 <= c p) -> (forall p, close (c p) (s p) (s' p)) ->
  forall t p, prob s p t <= product c p t * prob s' p t.
Proof. intros s s' c H H' Hc Hs. induction t as [|o t IH]; intro p; cbn [prob product]; [lra|].
  setoid_replace (c p * product c (o :: p) t * (s' p o * prob s' (o :: p) t)) with ((c p * s' p o) * (product c (o :: p) t * prob s' (o :: p) t)) by ring.
  apply mul_le; [apply H|apply prob_pos; assumption|apply Hs|apply IH]. Qed.

(* With whole prices in a unit g: if no path costs more than B units, the interaction is g^B close. *)
Fixpoint price (k : list O -> nat) (past t : list O) : nat := match t with [] => 0 | o :: r => k past + price k (o :: past) r end.
Theorem adaptive_budget : forall s s' g k B, 1 <= g -> (forall p, pos (s p)) -> (forall p, pos (s' p)) ->
  (forall p, close (qpow g (k p)) (s p) (s' p)) -> forall t, (price k [] t <= B)%nat -> prob s [] t <= qpow g B * prob s' [] t.
Proof. intros s s' g k B Hg H H' Hs t Hp.
  assert (E : forall t p, product (fun p => qpow g (k p)) p t == qpow g (price k p t)).
  { induction t0 as [|o t0 IH]; intro p; cbn [product price]; [reflexivity|]. rewrite IH, qpow_add. reflexivity. }
  pose proof (adaptive s s' (fun p => qpow g (k p)) H H' ltac:(intro; apply qpow_pos; lra) Hs t []) as A. rewrite E in A.
  pose proof (qpow_mono g _ _ Hg Hp). pose proof (prob_pos s' H' t []). nra. Qed.
End Adaptive.

(* A factor c for one record more or less gives c^n at symmetric distance n. *)
Theorem group_privacy : forall R eqR O (M : list R -> O -> Q) c, 0 <= c -> (forall xs ys, Permutation xs ys -> close 1 (M xs) (M ys)) ->
  (forall xs ys, neighbour R xs ys -> close c (M xs) (M ys)) ->
  forall xs ys, close (qpow c (distance R eqR xs ys)) (M xs) (M ys).
Proof. intros R eqR O M c Hc Hp Hn xs ys. pose proof (distance_is_a_chain R eqR xs ys) as C. induction C.
  - apply Hp. assumption.
  - intro o. cbn [qpow]. specialize (IHC o). specialize (Hn _ _ H o). nra. Qed.
Theorem group_privacy_at_most : forall R eqR O (M : list R -> O -> Q) c, 1 <= c -> (forall xs, pos (M xs)) -> (forall xs ys, Permutation xs ys -> close 1 (M xs) (M ys)) ->
  (forall xs ys, neighbour R xs ys -> close c (M xs) (M ys)) ->
  forall xs ys n, (distance R eqR xs ys <= n)%nat -> close (qpow c n) (M xs) (M ys).
Proof. intros R eqR O M c Hc Hpos Hp Hn xs ys n L o. pose proof (group_privacy R eqR O M c ltac:(lra) Hp Hn xs ys o).
  pose proof (qpow_mono c _ _ Hc L). specialize (Hpos ys o). nra. Qed.

(* A public predicate cuts the records in two and one mechanism reads each part: together they are as private as the
   worse of the two. *)
Theorem parallel : forall R eqR O1 O2 (M1 : list R -> O1 -> Q) (M2 : list R -> O2 -> Q) (p : R -> bool) c, 1 <= c ->
  (forall xs, pos (M1 xs)) -> (forall xs, pos (M2 xs)) ->
  (forall xs ys, close (qpow c (distance R eqR xs ys)) (M1 xs) (M1 ys)) -> (forall xs ys, close (qpow c (distance R eqR xs ys)) (M2 xs) (M2 ys)) ->
  forall xs ys, close (qpow c (distance R eqR xs ys))
    (fun o => M1 (filter p xs) (fst o) * M2 (filter (fun r => negb (p r)) xs) (snd o))
    (fun o => M1 (filter p ys) (fst o) * M2 (filter (fun r => negb (p r)) ys) (snd o)).
Proof. intros R eqR O1 O2 M1 M2 p c Hc P1 P2 H1 H2 xs ys o.
  rewrite <- (partition_distance R eqR p xs ys). rewrite qpow_add.
  set (a := distance R eqR (filter p xs) (filter p ys)). set (b := distance R eqR (filter (fun r => negb (p r)) xs) (filter (fun r => negb (p r)) ys)).
  specialize (H1 (filter p xs) (filter p ys) (fst o)). fold a in H1.
  specialize (H2 (filter (fun r => negb (p r)) xs) (filter (fun r => negb (p r)) ys) (snd o)). fold b in H2.
  setoid_replace (qpow c a * qpow c b * (M1 (filter p ys) (fst o) * M2 (filter (fun r => negb (p r)) ys) (snd o)))
    with ((qpow c a * M1 (filter p ys) (fst o)) * (qpow c b * M2 (filter (fun r => negb (p r)) ys) (snd o))) by ring.
  apply mul_le; [apply P1|apply P2|assumption|assumption]. Qed.

(* A k-stable map before a private mechanism: the loss at distance d is that of the mechanism at k d. *)
Theorem before : forall A B O (dA : list A -> list A -> nat) (dB : list B -> list B -> nat) f k (M : list B -> O -> Q) c, 1 <= c -> (forall xs, pos (M xs)) ->
  stable dA dB f k -> (forall xs ys, close (qpow c (dB xs ys)) (M xs) (M ys)) ->
  forall xs ys, close (qpow c (k * dA xs ys)) (M (f xs)) (M (f ys)).
Proof. intros A B O dA dB f k M c Hc Hp Hf HM xs ys o. pose proof (HM (f xs) (f ys) o). pose proof (qpow_mono c _ _ Hc (Hf xs ys)).
  specialize (Hp (f ys) o). nra. Qed.

(* One draw: weights rise by a factor of at most g^a and fall by at most g^b, so
   probabilities change by at most g^(a + b). *)
Theorem bounded_range : forall (l : list nat) (w w' : nat -> Q) g a b, 1 <= g -> (forall i, 0 < w i) -> (forall i, 0 < w' i) ->
  (forall i, w' i <= qpow g a * w i) -> (forall i, w i <= qpow g b * w' i) -> forall j, In j l ->
  w' j * qsum w l <= qpow g (a + b) * (w j * qsum w' l).
Proof. intros l w w' g a b Hg Hw Hw' Ha Hb j Hj.
  assert (S : qsum w l <= qpow g b * qsum w' l) by (apply (events nat (qpow g b) w w'); exact Hb).
  assert (S0 : forall l, 0 <= qsum w l) by (induction l0 as [|i l0 IH]; cbn [qsum]; [lra|specialize (Hw i); lra]).
  rewrite qpow_add. setoid_replace (qpow g a * qpow g b * (w j * qsum w' l)) with ((qpow g a * w j) * (qpow g b * qsum w' l)) by ring.
  apply mul_le; [specialize (Hw' j); lra|apply S0|apply Ha|assumption]. Qed.

(* peel.md, Lemma 1, one draw: the ratios of any two candidates' weights differ by at most g^(a + b). *)
Theorem bounded_range_pair : forall (w w' : nat -> Q) g a b i j, 1 <= g -> 0 < w i -> 0 < w' i -> 0 < w j -> 0 < w' j ->
  w' i <= qpow g a * w i -> w j <= qpow g b * w' j -> (w' i) * (w j) <= qpow g (a + b) * (w i * w' j).
Proof. intros. rewrite qpow_add. setoid_replace (qpow g a * qpow g b * (w i * w' j)) with ((qpow g a * w i) * (qpow g b * w' j)) by ring.
  apply mul_le; lra. Qed.

(* private_knn.md, Lemma 1, and attackers.md, Lemma A5, the group: (c, delta) for one record gives c^n and delta (1 + c +
   ... + c^(n-1)) at distance n. *)
Section Approx.
Open Scope Q_scope.
Definition near_dp {O} (c delta : Q) (P P' : list O -> Q) := forall E, P E <= c * P' E + delta.
Fixpoint geometric (c : Q) (n : nat) : Q := match n with O => 0 | S m => 1 + c * geometric c m end.
Theorem geometric_closed : forall c n, (c - 1) * geometric c n == qpow c n - 1.
Proof. induction n; cbn [geometric qpow]; [ring|]. setoid_replace ((c - 1) * (1 + c * geometric c n)) with ((c - 1) + c * ((c - 1) * geometric c n)) by ring. rewrite IHn. ring. Qed.
Theorem group_approx : forall R eqR O (M : list R -> list O -> Q) c delta, 0 <= c -> 0 <= delta ->
  (forall xs ys, Permutation xs ys -> forall E, M xs E <= M ys E) ->
  (forall xs ys, neighbour R xs ys -> near_dp c delta (M xs) (M ys)) ->
  forall xs ys, near_dp (qpow c (distance R eqR xs ys)) (delta * geometric c (distance R eqR xs ys)) (M xs) (M ys).
Proof. intros R eqR O M c delta Hc Hd Hp Hn xs ys. pose proof (distance_is_a_chain R eqR xs ys) as C. induction C; intro E; cbn [qpow geometric].
  - specialize (Hp _ _ H E). lra.
  - specialize (IHC E). specialize (Hn _ _ H E). nra. Qed.

End Approx.
