(* Releases with delta, put together: stable_top_k.md, Lemma 1; limited_domain.md, Lemmas 2 and 3; noise_threshold.md, Lemma 3. Laws
   are finite and rational, and factors stand for e^eps. *)
Require Import QArith List Lia Lqa ZArith.
Import ListNotations.
From Proofs Require Import differential_privacy top_k stable_set.
Open Scope Q_scope.

Definition approx {O} (outs : list O) (c delta : Q) (P P' : O -> Q) := forall E : O -> bool, qsum (fun o => ind (E o) * P o) outs <= c * qsum (fun o => ind (E o) * P' o) outs + delta.
Lemma qsum_le : forall (O : Type) (f g : O -> Q) l, (forall o, In o l -> f o <= g o) -> qsum f l <= qsum g l.
Proof. induction l as [|o l IH]; intro H; cbn [qsum]; [lra|]. specialize (IH ltac:(intros; apply H; right; assumption)). specialize (H o (or_introl eq_refl)). lra. Qed.
Lemma qsum_times : forall (O : Type) (f : O -> Q) a l, qsum (fun o => a * f o) l == a * qsum f l.
Proof. induction l as [|o l IH]; cbn [qsum]; [ring|]. rewrite IH. ring. Qed.
Lemma qsum_plus : forall (O : Type) (f g : O -> Q) l, qsum (fun o => f o + g o) l == qsum f l + qsum g l.
Proof. induction l as [|o l IH]; cbn [qsum]; [ring|]. rewrite IH. ring. Qed.

(* What holds of events holds of chances: f o is the chance that what follows the answer o is in an event. *)
Theorem approx_weighted : forall O outs c delta (P P' : O -> Q), approx outs c delta P P' -> forall f, (forall o, 0 <= f o /\ f o <= 1) ->
  qsum (fun o => f o * P o) outs <= c * qsum (fun o => f o * P' o) outs + delta.
Proof. intros O outs c delta P P' H f Hf. specialize (H (fun o => if Qlt_le_dec (c * P' o) (P o) then true else false)). cbv beta in H.
  assert (G : qsum (fun o => f o * P o) outs <= qsum (fun o => c * (f o * P' o) + (ind (if Qlt_le_dec (c * P' o) (P o) then true else false) * P o
       + (- c) * (ind (if Qlt_le_dec (c * P' o) (P o) then true else false) * P' o))) outs).
  { apply qsum_le. intros o _. destruct (Hf o). destruct (Qlt_le_dec (c * P' o) (P o)); unfold ind; nra. }
  rewrite !qsum_plus, !qsum_times in G. lra. Qed.

(* A mechanism that follows, of factor c2 for every answer. *)
Theorem approx_then_pure : forall O outs c c2 delta (P P' : O -> Q) f f', 0 <= c -> (forall o, 0 <= P' o) -> approx outs c delta P P' ->
  (forall o, 0 <= f o /\ f o <= 1) -> (forall o, f o <= c2 * f' o) ->
  qsum (fun o => f o * P o) outs <= (c * c2) * qsum (fun o => f' o * P' o) outs + delta.
Proof. intros O outs c c2 delta P P' f f' Hc HP H Hf Hff. pose proof (approx_weighted O outs c delta P P' H f Hf) as A.
  assert (B : qsum (fun o => f o * P' o) outs <= qsum (fun o => c2 * (f' o * P' o)) outs) by (apply qsum_le; intros o _; specialize (HP o); specialize (Hff o); nra).
  rewrite qsum_times in B. assert (c * qsum (fun o => f o * P' o) outs <= c * (c2 * qsum (fun o => f' o * P' o) outs)).
  { assert (0 <= c * (c2 * qsum (fun o => f' o * P' o) outs - qsum (fun o => f o * P' o) outs)) by (apply Qmult_le_0_compat; lra). lra. } lra. Qed.

(* A draw of factor c1, and after each of its answers something whose event has the chances t j and t' j. *)
Theorem pure_then_approx : forall J (js : list J) (r r' t t' : J -> Q) c1 c2 delta, 0 <= c2 -> 0 <= delta -> (forall j, 0 <= r j) -> qsum r js <= 1 ->
  (forall j, r j <= c1 * r' j) -> (forall j, 0 <= t' j) -> (forall j, In j js -> t j <= c2 * t' j + delta) ->
  qsum (fun j => r j * t j) js <= (c1 * c2) * qsum (fun j => r' j * t' j) js + delta.
Proof. intros J js r r' t t' c1 c2 delta H2 Hd Hr H1 Hrr Ht Htt.
  assert (A : qsum (fun j => r j * t j) js <= qsum (fun j => (c1 * c2) * (r' j * t' j) + delta * r j) js).
  { apply qsum_le. intros j Hj. specialize (Htt j Hj). specialize (Hr j). specialize (Hrr j). specialize (Ht j).
    assert (r j * t j <= r j * (c2 * t' j + delta)) by nra. assert (0 <= (c1 * r' j - r j) * (c2 * t' j)) by (apply Qmult_le_0_compat; [lra|apply Qmult_le_0_compat; assumption]). lra. }
  rewrite qsum_plus, !qsum_times in A. assert (delta * qsum r js <= delta) by nra. lra. Qed.

(* stable_top_k.md, Lemma 1. A rank j is drawn, with chances r of factor c1, and then the test of stable_set.md is made at
   k = j; delta is paid once, however many ranks there are. *)
Section StableTopK.
Variable m : nat. Variables a b : Z. Hypothesis a0 : (0 <= a)%Z. Hypothesis b0 : (0 <= b)%Z.
Variable pass : Z -> Q. Variables c1 c delta : Q. Hypothesis c_1 : 1 <= c. Hypothesis d1 : delta <= 1.
Hypothesis pass01 : forall g, 0 <= pass g /\ pass g <= 1.
Hypothesis pass_mono : forall g g', (g <= g')%Z -> pass g <= pass g'.
Hypothesis pass_close : forall g g', (Z.abs (g - g') <= a + b)%Z -> pass g <= c * pass g' /\ 1 - pass g <= c * (1 - pass g').
Hypothesis pass_far : pass (a + b) <= delta.
Variable listed : bool. Variables h h' : nat -> Z. Hypothesis moved : near m a b h h'.
Hypothesis counts : listed = false -> (forall i, (0 <= h i)%Z) /\ (forall i, (0 <= h' i)%Z).
Variable ranks : list nat. Hypothesis ranks_in : forall j, In j ranks -> (1 <= j < m)%nat.
Variables r r' : nat -> Q. Hypothesis r0 : forall j, 0 <= r j. Hypothesis r1 : qsum r ranks <= 1.
Hypothesis r_close : forall j, r j <= c1 * r' j.
(* For each rank its top set, and the order statistics on both sides of its gap. *)
Variables S S' : nat -> list nat. Variables p q p' q' : nat -> Z.
Hypothesis sets : forall j, In j ranks -> top m h j (S j) /\ top m h' j (S' j) /\ kth m h j (p j) /\ kth m h (Datatypes.S j) (q j) /\ kth m h' j (p' j) /\ kth m h' (Datatypes.S j) (q' j).
Variable E : nat -> list nat -> bool. Variable N : nat -> bool. Hypothesis E_sets : forall j A B, (forall x, In x A <-> In x B) -> E j A = E j B.
Definition answer g T x y j := event (E j) (N j) (T j) (chance pass listed g (T j) (x j - y j)).
Theorem stable_top_k : qsum (fun j => r j * answer h S p q j) ranks <= (c1 * c) * qsum (fun j => r' j * answer h' S' p' q' j) ranks + delta.
Proof. assert (D0 : 0 <= delta) by (pose proof (pass01 (a + b)); lra).
  assert (P : forall g T, 0 <= chance pass listed g T 0 /\ True) by (intros; unfold chance; destruct (votes_ok listed g T); destruct (pass01 0); split; auto; lra).
  assert (A0 : forall g T x y j, 0 <= answer g T x y j).
  { intros g T x y j. unfold answer, event, chance. destruct (votes_ok listed g (T j)), (E j (T j)), (N j); unfold ind; destruct (pass01 (x j - y j)); lra. }
  apply (pure_then_approx nat ranks r r' (answer h S p q) (answer h' S' p' q') c1 c delta); try assumption; try lra.
  - intro j. apply A0.
  - intros j Hj. destruct (sets j Hj) as (T1 & T2 & K1 & K2 & K3 & K4). pose proof (ranks_in j Hj). unfold answer.
    apply (stable_set m j ltac:(lia) a b a0 b0 pass c delta c_1 d1 pass01 pass_mono pass_close pass_far listed h h' (S j) (S' j) (p j) (q j) (p' j) (q' j)); try assumption. apply E_sets. Qed.
End StableTopK.

(* A law that has a share 1 - delta of another one, on both sides: limited_domain.md, Lemma 2 and noise_threshold.md, Lemma 3,
   as one (eps, delta) release, R of the factor c. *)
Theorem mixture_release : forall O (outs : list O) P P' R R' c delta, 0 <= delta -> delta <= 1 -> (forall o, 0 <= R o) ->
  (forall o, (1 - delta) * R o <= P o) -> (forall o, (1 - delta) * R' o <= P' o) -> (forall o, R o <= c * R' o) -> 0 <= c ->
  qsum P outs <= 1 -> 1 <= qsum R outs -> forall E, qsum (fun o => ind (E o) * P o) outs <= c * qsum (fun o => ind (E o) * P' o) outs + delta.
Proof. intros O outs P P' R R' c delta D0 D1 R0 HP HP' HR Hc TP TR E.
  assert (A : qsum (fun o => ind (E o) * P o) outs <= qsum (fun o => c * (ind (E o) * P' o) + (P o + (- (1 - delta)) * R o)) outs).
  { apply qsum_le. intros o _. specialize (HP o). specialize (HP' o). specialize (HR o). specialize (R0 o).
    assert ((1 - delta) * R o <= c * P' o). { assert (0 <= (1 - delta) * (c * R' o - R o)) by (apply Qmult_le_0_compat; lra). assert (0 <= c * (P' o - (1 - delta) * R' o)) by (apply Qmult_le_0_compat; lra). lra. }
    destruct (E o); unfold ind; lra. }
  rewrite !qsum_plus, !qsum_times in A. assert ((1 - delta) * 1 <= (1 - delta) * qsum R outs) by (assert (0 <= (1 - delta) * (qsum R outs - 1)) by (apply Qmult_le_0_compat; lra); lra). lra. Qed.

(* limited_domain.md, Lemma 2: drawing among common candidates and a stop of weight w0, with more candidates of weight `extra`
   in all. A sequence of common candidates, stopped or not, keeps a share of w0 / (w0 + extra) a round. *)
Section Limited.
Variable w : nat -> Q. Hypothesis w_pos : forall i, 0 <= w i. Variable w0 : Q. Hypothesis w0_pos : 0 < w0.
Fixpoint without (x : nat) (l : list nat) := match l with [] => [] | y :: r => if Nat.eqb x y then r else y :: without x r end.
Fixpoint drawn (extra : Q) (left : list nat) (o : list nat) (stopped : bool) : Q := match o with
  | [] => if stopped then w0 / (qsum w left + w0 + extra) else 1 | x :: r => w x / (qsum w left + w0 + extra) * drawn extra (without x left) r stopped end.
Definition share (extra : Q) := w0 / (w0 + extra).
Lemma qsum_pos : forall l, 0 <= qsum w l.
Proof. induction l as [|x l IH]; cbn [qsum]; [lra|]. specialize (w_pos x). lra. Qed.
Lemma share_01 : forall extra, 0 <= extra -> 0 < share extra /\ share extra <= 1.
Proof. intros extra H. unfold share. split; [apply Qlt_shift_div_l; lra|apply Qle_shift_div_r; lra]. Qed.
Lemma one_draw : forall extra left x, 0 <= extra -> 0 <= x -> share extra * (x / (qsum w left + w0 + 0)) <= x / (qsum w left + w0 + extra).
Proof. intros extra left x H Hx. pose proof (qsum_pos left). unfold share.
  assert (w0 / (w0 + extra) * (x / (qsum w left + w0 + 0)) == (w0 * x) / ((w0 + extra) * (qsum w left + w0))) as -> by (field; split; lra).
  apply Qle_shift_div_r; [nra|]. assert (x / (qsum w left + w0 + extra) * ((w0 + extra) * (qsum w left + w0)) == x * ((w0 + extra) * (qsum w left + w0)) / (qsum w left + w0 + extra)) as -> by (field; lra).
  apply Qle_shift_div_l; [lra|]. assert (0 <= x * (qsum w left * extra)) by (apply Qmult_le_0_compat; [assumption|apply Qmult_le_0_compat; assumption]). lra. Qed.
Definition rounds (o : list nat) (stopped : bool) : nat := (length o + if stopped then 1 else 0)%nat.
Theorem limited_share : forall extra stopped o left, 0 <= extra -> qpow (share extra) (rounds o stopped) * drawn 0 left o stopped <= drawn extra left o stopped.
Proof. intros extra stopped o. induction o as [|x o IH]; intros left H; destruct (share_01 extra H) as [A B]; unfold rounds in *; cbn [drawn length plus].
  - pose proof (one_draw extra left w0 H ltac:(lra)). destruct stopped; cbn [qpow]; [|lra]. lra.
  - specialize (IH (without x left) H). pose proof (one_draw extra left (w x) H (w_pos x)) as C. pose proof (qsum_pos left).
    assert (D0 : forall ex l s oo, 0 <= ex -> 0 <= drawn ex l oo s).
    { clear - w_pos w0_pos. intros ex l s oo Hex. revert l. induction oo as [|y oo IHo]; intro l; cbn [drawn]; pose proof (qsum_pos l).
      - destruct s; [apply Qle_shift_div_l; lra|lra].
      - apply Qmult_le_0_compat; [apply Qle_shift_div_l; [lra|specialize (w_pos y); lra]|apply IHo]. }
    cbn [qpow]. pose proof (qpow_pos (share extra) (rounds o stopped) ltac:(lra)) as Q0.
    setoid_replace (share extra * qpow (share extra) (rounds o stopped) * (w x / (qsum w left + w0 + 0) * drawn 0 (without x left) o stopped))
      with ((share extra * (w x / (qsum w left + w0 + 0))) * (qpow (share extra) (rounds o stopped) * drawn 0 (without x left) o stopped)) by ring.
    apply mul_le; [|apply Qmult_le_0_compat; [assumption|apply D0; lra]|assumption|assumption].
    apply Qmult_le_0_compat; [lra|]. apply Qle_shift_div_l; [lra|specialize (w_pos x); lra]. Qed.
(* In at most k rounds the share is at least that of k, and with extra at most ratio times w0 at least (1 + ratio)^-k. *)
Theorem limited_share_of_rounds : forall extra ratio k stopped o left, 0 <= extra -> extra <= ratio * w0 -> (rounds o stopped <= k)%nat -> 0 <= drawn 0 left o stopped ->
  qpow (1 / (1 + ratio)) k * drawn 0 left o stopped <= drawn extra left o stopped.
Proof. intros extra ratio k stopped o left H R L D. eapply Qle_trans; [|apply limited_share; assumption]. destruct (share_01 extra H) as [A B].
  assert (R0 : 0 <= ratio) by (assert (0 <= ratio * w0) by lra; destruct (Qlt_le_dec ratio 0); [nra|assumption]).
  assert (S1 : 1 / (1 + ratio) <= share extra).
  { unfold share. apply Qle_shift_div_l; [lra|]. assert (1 / (1 + ratio) * (w0 + extra) == (w0 + extra) / (1 + ratio)) as -> by (field; lra). apply Qle_shift_div_r; lra. }
  assert (S0 : 0 <= 1 / (1 + ratio)) by (apply Qle_shift_div_l; lra). assert (S2 : 1 / (1 + ratio) <= 1) by (apply Qle_shift_div_r; lra).
  assert (M : forall n, qpow (1 / (1 + ratio)) n <= qpow (share extra) n).
  { induction n as [|n IH]; cbn [qpow]; [lra|]. apply mul_le; [assumption|apply qpow_pos; assumption|assumption|assumption]. }
  assert (N : forall n j, qpow (1 / (1 + ratio)) (j + n) <= qpow (1 / (1 + ratio)) n).
  { intros n j. induction j as [|j IH]; cbn [plus qpow]; [lra|]. pose proof (qpow_pos (1 / (1 + ratio)) (j + n) S0). nra. }
  set (n := rounds o stopped) in *. specialize (M n). specialize (N n (k - n)%nat). replace (k - n + n)%nat with k in N by lia.
  pose proof (qpow_pos (1 / (1 + ratio)) k S0). nra. Qed.

(* More candidates only lower the chance of a sequence without them. *)
Theorem fewer_candidates : forall extra stopped o left, 0 <= extra -> drawn extra left o stopped <= drawn 0 left o stopped.
Proof. intros extra stopped o. induction o as [|x o IH]; intros left H; cbn [drawn]; pose proof (qsum_pos left) as G.
  - destruct stopped; [|lra]. apply Qle_shift_div_l; [lra|]. assert (w0 / (qsum w left + w0 + extra) * (qsum w left + w0 + 0) == w0 * (qsum w left + w0) / (qsum w left + w0 + extra)) as -> by (field; lra).
    apply Qle_shift_div_r; [lra|]. assert (0 <= w0 * extra) by (apply Qmult_le_0_compat; lra). lra.
  - specialize (w_pos x) as X. assert (D0 : forall ex l oo, 0 <= ex -> 0 <= drawn ex l oo stopped).
    { clear - w_pos w0_pos. intros ex l oo Hex. revert l. induction oo as [|y oo IHo]; intro l; cbn [drawn]; pose proof (qsum_pos l).
      - destruct stopped; [apply Qle_shift_div_l; lra|lra].
      - apply Qmult_le_0_compat; [apply Qle_shift_div_l; [lra|specialize (w_pos y); lra]|apply IHo]. }
    apply mul_le; [apply Qle_shift_div_l; lra|apply D0; assumption| |apply IH; assumption].
    apply Qle_shift_div_l; [lra|]. assert (w x / (qsum w left + w0 + extra) * (qsum w left + w0 + 0) == w x * (qsum w left + w0) / (qsum w left + w0 + extra)) as -> by (field; lra).
    apply Qle_shift_div_r; [lra|]. assert (0 <= w x * extra) by (apply Qmult_le_0_compat; lra). lra. Qed.
End Limited.

(* limited_domain.md, Lemma 3. U and U' draw from all candidates of both sides; `good` sequences have no item of one side.
   Bad ones have the chance x at most, good ones more than under U by y at most. *)
Theorem limited_curve : forall O (outs : list O) (good : O -> bool) P P' U U' c D x y, 0 <= c -> (forall o, 0 <= P o) -> (forall o, 0 <= P' o) ->
  qsum (fun o => ind (negb (good o)) * P o) outs <= x -> (forall o, good o = true -> U o <= P o) -> qsum (fun o => ind (good o) * (P o + (- (1)) * U o)) outs <= y ->
  approx outs c D U U' -> (forall o, good o = true -> U' o <= P' o) -> approx outs c (D + x + y) P P'.
Proof. intros O outs good P P' U U' c D x y Hc HP HP' Hx HU Hy HD HU' E. specialize (HD (fun o => (E o && good o)%bool)). cbv beta in HD.
  assert (A : qsum (fun o => ind (E o) * P o) outs <= qsum (fun o => ind (negb (good o)) * P o + (ind (good o) * (P o + (- (1)) * U o) + ind (E o && good o) * U o)) outs).
  { apply qsum_le. intros o _. specialize (HP o). specialize (HU o). destruct (E o), (good o); unfold ind; cbn [negb andb]; try specialize (HU eq_refl); lra. }
  rewrite !qsum_plus in A.
  assert (B : qsum (fun o => ind (E o && good o) * U' o) outs <= qsum (fun o => ind (E o) * P' o) outs).
  { apply qsum_le. intros o _. specialize (HP' o). specialize (HU' o). destruct (E o), (good o); unfold ind; cbn [andb]; try specialize (HU' eq_refl); lra. }
  assert (0 <= c * (qsum (fun o => ind (E o) * P' o) outs - qsum (fun o => ind (E o && good o) * U' o) outs)) by (apply Qmult_le_0_compat; lra). lra. Qed.

(* noise_threshold.md, Lemma 3: items of one side pass or not independently of the others, with chances ts each; the rest of the
   release has the law R. None passes with the product of 1 - t, and then the release is that of R. *)
Fixpoint none_passes (ts : list Q) : Q := match ts with [] => 1 | t :: r => (1 - t) * none_passes r end.
Theorem none_passes_union : forall ts, (forall t, In t ts -> 0 <= t /\ t <= 1) -> 1 - qsum (fun t => t) ts <= none_passes ts /\ 0 <= none_passes ts /\ none_passes ts <= 1.
Proof. induction ts as [|t ts IH]; intro H; cbn [qsum none_passes]; [lra|]. destruct (IH ltac:(intros; apply H; right; assumption)) as (A & B & C). destruct (H t (or_introl eq_refl)).
  assert (0 <= t * none_passes ts) by (apply Qmult_le_0_compat; assumption). assert (t * none_passes ts <= t * 1) by nra. assert (0 <= (1 - t) * none_passes ts) by (apply Qmult_le_0_compat; lra). repeat split; nra. Qed.
(* One side's items and the rest are independent, so an output o of the rest alone has the chance `none * R o` at least. *)
Theorem noise_threshold_release : forall O (outs : list O) P P' R R' ts ts' c delta, 0 <= delta -> delta <= 1 -> (forall o, 0 <= R o) -> (forall o, 0 <= R' o) ->
  1 - delta <= none_passes ts -> 1 - delta <= none_passes ts' -> (forall o, none_passes ts * R o <= P o) -> (forall o, none_passes ts' * R' o <= P' o) ->
  (forall o, R o <= c * R' o) -> 0 <= c -> qsum P outs <= 1 -> 1 <= qsum R outs ->
  forall E, qsum (fun o => ind (E o) * P o) outs <= c * qsum (fun o => ind (E o) * P' o) outs + delta.
Proof. intros O outs P P' R R' ts ts' c delta D0 D1 R0 R0' N N' HP HP' HR Hc TP TR E. apply (mixture_release O outs P P' R R' c delta); try assumption.
  - intro o. specialize (HP o). specialize (R0 o). assert (0 <= (none_passes ts - (1 - delta)) * R o) by (apply Qmult_le_0_compat; lra). lra.
  - intro o. specialize (HP' o). specialize (R0' o). assert (0 <= (none_passes ts' - (1 - delta)) * R' o) by (apply Qmult_le_0_compat; lra). lra. Qed.
