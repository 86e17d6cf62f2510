
(** val negb : bool -> bool **)

let negb = function
| true -> false
| false -> true

(** val fst : ('a1 * 'a2) -> 'a1 **)

let fst = function
| (x, _) -> x

(** val snd : ('a1 * 'a2) -> 'a2 **)

let snd = function
| (_, y) -> y

(** val length : 'a1 list -> int **)

let rec length = function
| [] -> 0
| _ :: l' -> Stdlib.Int.succ (length l')

(** val app : 'a1 list -> 'a1 list -> 'a1 list **)

let rec app l m =
  match l with
  | [] -> m
  | a :: l1 -> a :: (app l1 m)

type comparison =
| Eq
| Lt
| Gt

module Coq__1 = struct
 (** val add : int -> int -> int **)let rec add = (+)
end
include Coq__1

(** val mul : int -> int -> int **)

let rec mul = ( * )

(** val sub : int -> int -> int **)

let rec sub = fun n m -> Stdlib.max 0 (n-m)

module Nat =
 struct
  (** val add : int -> int -> int **)

  let rec add n m =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> m)
      (fun p -> Stdlib.Int.succ (add p m))
      n

  (** val mul : int -> int -> int **)

  let rec mul n m =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> 0)
      (fun p -> add m (mul p m))
      n

  (** val sub : int -> int -> int **)

  let rec sub n m =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> n)
      (fun k0 ->
      (fun fO fS n -> if n=0 then fO () else fS (n-1))
        (fun _ -> n)
        (fun l -> sub k0 l)
        m)
      n

  (** val ltb : int -> int -> bool **)

  let ltb n m =
    (<=) (Stdlib.Int.succ n) m

  (** val pow : int -> int -> int **)

  let rec pow n m =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> Stdlib.Int.succ 0)
      (fun m0 -> mul n (pow n m0))
      m

  (** val divmod : int -> int -> int -> int -> int * int **)

  let rec divmod x y q u =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> (q, u))
      (fun x' ->
      (fun fO fS n -> if n=0 then fO () else fS (n-1))
        (fun _ -> divmod x' y (Stdlib.Int.succ q) y)
        (fun u' -> divmod x' y q u')
        u)
      x

  (** val div : int -> int -> int **)

  let div x y =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> y)
      (fun y' -> fst (divmod x y' 0 y'))
      y

  (** val modulo : int -> int -> int **)

  let modulo x y =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> x)
      (fun y' -> sub y' (snd (divmod x y' 0 y')))
      y
 end

module Pos =
 struct
  type mask =
  | IsNul
  | IsPos of Big_int_Z.big_int
  | IsNeg
 end

module Coq_Pos =
 struct
  (** val succ : Big_int_Z.big_int -> Big_int_Z.big_int **)

  let rec succ = Big_int_Z.succ_big_int

  (** val add :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let rec add = Big_int_Z.add_big_int

  (** val add_carry :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  and add_carry x y =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun p ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q ->
        (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
        (add_carry p q))
        (fun q -> Big_int_Z.mult_int_big_int 2 (add_carry p q))
        (fun _ ->
        (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
        (succ p))
        y)
      (fun p ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q -> Big_int_Z.mult_int_big_int 2 (add_carry p q))
        (fun q ->
        (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
        (add p q))
        (fun _ -> Big_int_Z.mult_int_big_int 2 (succ p))
        y)
      (fun _ ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q ->
        (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
        (succ q))
        (fun q -> Big_int_Z.mult_int_big_int 2 (succ q))
        (fun _ ->
        (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
        Big_int_Z.unit_big_int)
        y)
      x

  (** val pred_double : Big_int_Z.big_int -> Big_int_Z.big_int **)

  let rec pred_double x =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun p ->
      (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
      (Big_int_Z.mult_int_big_int 2 p))
      (fun p ->
      (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
      (pred_double p))
      (fun _ -> Big_int_Z.unit_big_int)
      x

  type mask = Pos.mask =
  | IsNul
  | IsPos of Big_int_Z.big_int
  | IsNeg

  (** val succ_double_mask : mask -> mask **)

  let succ_double_mask = function
  | IsNul -> IsPos Big_int_Z.unit_big_int
  | IsPos p ->
    IsPos ((fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
      p)
  | IsNeg -> IsNeg

  (** val double_mask : mask -> mask **)

  let double_mask = function
  | IsPos p -> IsPos (Big_int_Z.mult_int_big_int 2 p)
  | x0 -> x0

  (** val double_pred_mask : Big_int_Z.big_int -> mask **)

  let double_pred_mask x =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun p -> IsPos (Big_int_Z.mult_int_big_int 2
      (Big_int_Z.mult_int_big_int 2 p)))
      (fun p -> IsPos (Big_int_Z.mult_int_big_int 2
      (pred_double p)))
      (fun _ -> IsNul)
      x

  (** val sub_mask : Big_int_Z.big_int -> Big_int_Z.big_int -> mask **)

  let rec sub_mask x y =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun p ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q -> double_mask (sub_mask p q))
        (fun q -> succ_double_mask (sub_mask p q))
        (fun _ -> IsPos (Big_int_Z.mult_int_big_int 2 p))
        y)
      (fun p ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q -> succ_double_mask (sub_mask_carry p q))
        (fun q -> double_mask (sub_mask p q))
        (fun _ -> IsPos (pred_double p))
        y)
      (fun _ ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun _ -> IsNeg)
        (fun _ -> IsNeg)
        (fun _ -> IsNul)
        y)
      x

  (** val sub_mask_carry : Big_int_Z.big_int -> Big_int_Z.big_int -> mask **)

  and sub_mask_carry x y =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun p ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q -> succ_double_mask (sub_mask_carry p q))
        (fun q -> double_mask (sub_mask p q))
        (fun _ -> IsPos (pred_double p))
        y)
      (fun p ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q -> double_mask (sub_mask_carry p q))
        (fun q -> succ_double_mask (sub_mask_carry p q))
        (fun _ -> double_pred_mask p)
        y)
      (fun _ -> IsNeg)
      x

  (** val mul :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let rec mul = Big_int_Z.mult_big_int

  (** val iter : ('a1 -> 'a1) -> 'a1 -> Big_int_Z.big_int -> 'a1 **)

  let rec iter f x n =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun n' -> f (iter f (iter f x n') n'))
      (fun n' -> iter f (iter f x n') n')
      (fun _ -> f x)
      n

  (** val compare_cont :
      comparison -> Big_int_Z.big_int -> Big_int_Z.big_int -> comparison **)

  let rec compare_cont = (fun c x y -> let s = Big_int_Z.compare_big_int x y in
  if s = 0 then c else if s < 0 then Lt else Gt)

  (** val compare : Big_int_Z.big_int -> Big_int_Z.big_int -> comparison **)

  let compare = (fun x y -> let s = Big_int_Z.compare_big_int x y in
  if s = 0 then Eq else if s < 0 then Lt else Gt)

  (** val leb : Big_int_Z.big_int -> Big_int_Z.big_int -> bool **)

  let leb x y =
    match compare x y with
    | Gt -> false
    | _ -> true

  (** val sqrtrem_step :
      (Big_int_Z.big_int -> Big_int_Z.big_int) -> (Big_int_Z.big_int ->
      Big_int_Z.big_int) -> (Big_int_Z.big_int * mask) ->
      Big_int_Z.big_int * mask **)

  let sqrtrem_step f g = function
  | (s, y) ->
    (match y with
     | IsPos r ->
       let s' =
         (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
         (Big_int_Z.mult_int_big_int 2 s)
       in
       let r' = g (f r) in
       if leb s' r'
       then (((fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
              s), (sub_mask r' s'))
       else ((Big_int_Z.mult_int_big_int 2 s), (IsPos r'))
     | _ ->
       ((Big_int_Z.mult_int_big_int 2 s),
         (sub_mask (g (f Big_int_Z.unit_big_int))
           (Big_int_Z.mult_int_big_int 2 (Big_int_Z.mult_int_big_int 2
           Big_int_Z.unit_big_int)))))

  (** val sqrtrem : Big_int_Z.big_int -> Big_int_Z.big_int * mask **)

  let rec sqrtrem p =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun p0 ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun p1 ->
        sqrtrem_step (fun x ->
          (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
          x) (fun x ->
          (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
          x) (sqrtrem p1))
        (fun p1 ->
        sqrtrem_step (fun x -> Big_int_Z.mult_int_big_int 2 x) (fun x ->
          (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
          x) (sqrtrem p1))
        (fun _ -> (Big_int_Z.unit_big_int, (IsPos
        (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int))))
        p0)
      (fun p0 ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun p1 ->
        sqrtrem_step (fun x ->
          (fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
          x) (fun x -> Big_int_Z.mult_int_big_int 2 x) (sqrtrem p1))
        (fun p1 ->
        sqrtrem_step (fun x -> Big_int_Z.mult_int_big_int 2 x) (fun x ->
          Big_int_Z.mult_int_big_int 2 x) (sqrtrem p1))
        (fun _ -> (Big_int_Z.unit_big_int, (IsPos Big_int_Z.unit_big_int)))
        p0)
      (fun _ -> (Big_int_Z.unit_big_int, IsNul))
      p

  (** val sqrt : Big_int_Z.big_int -> Big_int_Z.big_int **)

  let sqrt p =
    fst (sqrtrem p)

  (** val iter_op : ('a1 -> 'a1 -> 'a1) -> Big_int_Z.big_int -> 'a1 -> 'a1 **)

  let rec iter_op op p a =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun p0 -> op a (iter_op op p0 (op a a)))
      (fun p0 -> iter_op op p0 (op a a))
      (fun _ -> a)
      p

  (** val to_nat : Big_int_Z.big_int -> int **)

  let to_nat x =
    iter_op Coq__1.add x (Stdlib.Int.succ 0)

  (** val of_succ_nat : int -> Big_int_Z.big_int **)

  let rec of_succ_nat n =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> Big_int_Z.unit_big_int)
      (fun x -> succ (of_succ_nat x))
      n
 end

module Z =
 struct
  (** val double : Big_int_Z.big_int -> Big_int_Z.big_int **)

  let double x =
    (fun fO fp fn z -> let s = Big_int_Z.sign_big_int z in
  if s = 0 then fO () else if s > 0 then fp z
  else fn (Big_int_Z.minus_big_int z))
      (fun _ -> Big_int_Z.zero_big_int)
      (fun p -> (Big_int_Z.mult_int_big_int 2 p))
      (fun p -> Big_int_Z.minus_big_int (Big_int_Z.mult_int_big_int 2 p))
      x

  (** val succ_double : Big_int_Z.big_int -> Big_int_Z.big_int **)

  let succ_double x =
    (fun fO fp fn z -> let s = Big_int_Z.sign_big_int z in
  if s = 0 then fO () else if s > 0 then fp z
  else fn (Big_int_Z.minus_big_int z))
      (fun _ -> Big_int_Z.unit_big_int)
      (fun p ->
      ((fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x))
      p))
      (fun p -> Big_int_Z.minus_big_int (Coq_Pos.pred_double p))
      x

  (** val pred_double : Big_int_Z.big_int -> Big_int_Z.big_int **)

  let pred_double x =
    (fun fO fp fn z -> let s = Big_int_Z.sign_big_int z in
  if s = 0 then fO () else if s > 0 then fp z
  else fn (Big_int_Z.minus_big_int z))
      (fun _ -> Big_int_Z.minus_big_int Big_int_Z.unit_big_int)
      (fun p -> (Coq_Pos.pred_double p))
      (fun p -> Big_int_Z.minus_big_int
      ((fun x -> Big_int_Z.succ_big_int (Big_int_Z.mult_int_big_int 2 x)) p))
      x

  (** val pos_sub :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let rec pos_sub x y =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun p ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q -> double (pos_sub p q))
        (fun q -> succ_double (pos_sub p q))
        (fun _ -> (Big_int_Z.mult_int_big_int 2 p))
        y)
      (fun p ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q -> pred_double (pos_sub p q))
        (fun q -> double (pos_sub p q))
        (fun _ -> (Coq_Pos.pred_double p))
        y)
      (fun _ ->
      (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
        (fun q -> Big_int_Z.minus_big_int (Big_int_Z.mult_int_big_int 2
        q))
        (fun q -> Big_int_Z.minus_big_int (Coq_Pos.pred_double q))
        (fun _ -> Big_int_Z.zero_big_int)
        y)
      x

  (** val add :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let add = Big_int_Z.add_big_int

  (** val opp : Big_int_Z.big_int -> Big_int_Z.big_int **)

  let opp = Big_int_Z.minus_big_int

  (** val sub :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let sub = Big_int_Z.sub_big_int

  (** val mul :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let mul = Big_int_Z.mult_big_int

  (** val pow_pos :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let pow_pos z0 =
    Coq_Pos.iter (mul z0) Big_int_Z.unit_big_int

  (** val pow :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let pow x y =
    (fun fO fp fn z -> let s = Big_int_Z.sign_big_int z in
  if s = 0 then fO () else if s > 0 then fp z
  else fn (Big_int_Z.minus_big_int z))
      (fun _ -> Big_int_Z.unit_big_int)
      (fun p -> pow_pos x p)
      (fun _ -> Big_int_Z.zero_big_int)
      y

  (** val compare : Big_int_Z.big_int -> Big_int_Z.big_int -> comparison **)

  let compare = (fun x y -> let s = Big_int_Z.compare_big_int x y in
  if s = 0 then Eq else if s < 0 then Lt else Gt)

  (** val leb : Big_int_Z.big_int -> Big_int_Z.big_int -> bool **)

  let leb x y =
    match compare x y with
    | Gt -> false
    | _ -> true

  (** val ltb : Big_int_Z.big_int -> Big_int_Z.big_int -> bool **)

  let ltb x y =
    match compare x y with
    | Lt -> true
    | _ -> false

  (** val max :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let max = Big_int_Z.max_big_int

  (** val min :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let min = Big_int_Z.min_big_int

  (** val abs : Big_int_Z.big_int -> Big_int_Z.big_int **)

  let abs = Big_int_Z.abs_big_int

  (** val to_nat : Big_int_Z.big_int -> int **)

  let to_nat z0 =
    (fun fO fp fn z -> let s = Big_int_Z.sign_big_int z in
  if s = 0 then fO () else if s > 0 then fp z
  else fn (Big_int_Z.minus_big_int z))
      (fun _ -> 0)
      (fun p -> Coq_Pos.to_nat p)
      (fun _ -> 0)
      z0

  (** val of_nat : int -> Big_int_Z.big_int **)

  let of_nat n =
    (fun fO fS n -> if n=0 then fO () else fS (n-1))
      (fun _ -> Big_int_Z.zero_big_int)
      (fun n0 -> (Coq_Pos.of_succ_nat n0))
      n

  (** val pos_div_eucl :
      Big_int_Z.big_int -> Big_int_Z.big_int ->
      Big_int_Z.big_int * Big_int_Z.big_int **)

  let rec pos_div_eucl a b =
    (fun f2p1 f2p f1 p ->
  if Big_int_Z.le_big_int p Big_int_Z.unit_big_int then f1 () else
  let (q,r) = Big_int_Z.quomod_big_int p (Big_int_Z.big_int_of_int 2) in
  if Big_int_Z.eq_big_int r Big_int_Z.zero_big_int then f2p q else f2p1 q)
      (fun a' ->
      let (q, r) = pos_div_eucl a' b in
      let r' =
        add (mul (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) r)
          Big_int_Z.unit_big_int
      in
      if ltb r' b
      then ((mul (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) q), r')
      else ((add
              (mul (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) q)
              Big_int_Z.unit_big_int), (sub r' b)))
      (fun a' ->
      let (q, r) = pos_div_eucl a' b in
      let r' = mul (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) r in
      if ltb r' b
      then ((mul (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) q), r')
      else ((add
              (mul (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) q)
              Big_int_Z.unit_big_int), (sub r' b)))
      (fun _ ->
      if leb (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) b
      then (Big_int_Z.zero_big_int, Big_int_Z.unit_big_int)
      else (Big_int_Z.unit_big_int, Big_int_Z.zero_big_int))
      a

  (** val div_eucl :
      Big_int_Z.big_int -> Big_int_Z.big_int ->
      Big_int_Z.big_int * Big_int_Z.big_int **)

  let div_eucl = Big_int_Z.(fun x y ->
  match sign_big_int y with
  | 0 -> (zero_big_int, x)
  | 1 -> quomod_big_int x y
  | _ -> let (q, r) = quomod_big_int (add_int_big_int (-1) x) y in
          (add_int_big_int (-1) q, add_big_int (add_int_big_int 1 y) r))

  (** val div :
      Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

  let div = Big_int_Z.(fun x y ->
  match sign_big_int y with
  | 0 -> zero_big_int
  | 1 -> div_big_int x y
  | _ -> add_int_big_int (-1) (div_big_int (add_int_big_int (-1) x) y))

  (** val sqrt : Big_int_Z.big_int -> Big_int_Z.big_int **)

  let sqrt n =
    (fun fO fp fn z -> let s = Big_int_Z.sign_big_int z in
  if s = 0 then fO () else if s > 0 then fp z
  else fn (Big_int_Z.minus_big_int z))
      (fun _ -> Big_int_Z.zero_big_int)
      (fun p -> (Coq_Pos.sqrt p))
      (fun _ -> Big_int_Z.zero_big_int)
      n
 end

(** val in_dec : ('a1 -> 'a1 -> bool) -> 'a1 -> 'a1 list -> bool **)

let rec in_dec h a = function
| [] -> false
| y :: l0 -> let s = h y a in if s then true else in_dec h a l0

(** val map : ('a1 -> 'a2) -> 'a1 list -> 'a2 list **)

let rec map f = function
| [] -> []
| a :: t -> (f a) :: (map f t)

(** val flat_map : ('a1 -> 'a2 list) -> 'a1 list -> 'a2 list **)

let rec flat_map f = function
| [] -> []
| x :: t -> app (f x) (flat_map f t)

(** val fold_left : ('a1 -> 'a2 -> 'a1) -> 'a2 list -> 'a1 -> 'a1 **)

let rec fold_left f l a0 =
  match l with
  | [] -> a0
  | b :: t -> fold_left f t (f a0 b)

(** val fold_right : ('a2 -> 'a1 -> 'a1) -> 'a1 -> 'a2 list -> 'a1 **)

let rec fold_right f a0 = function
| [] -> a0
| b :: t -> f b (fold_right f a0 t)

(** val existsb : ('a1 -> bool) -> 'a1 list -> bool **)

let rec existsb f = function
| [] -> false
| a :: l0 -> (||) (f a) (existsb f l0)

(** val forallb : ('a1 -> bool) -> 'a1 list -> bool **)

let rec forallb f = function
| [] -> true
| a :: l0 -> (&&) (f a) (forallb f l0)

(** val filter : ('a1 -> bool) -> 'a1 list -> 'a1 list **)

let rec filter f = function
| [] -> []
| x :: l0 -> if f x then x :: (filter f l0) else filter f l0

(** val find : ('a1 -> bool) -> 'a1 list -> 'a1 option **)

let rec find f = function
| [] -> None
| x :: tl -> if f x then Some x else find f tl

(** val firstn : int -> 'a1 list -> 'a1 list **)

let rec firstn n l =
  (fun fO fS n -> if n=0 then fO () else fS (n-1))
    (fun _ -> [])
    (fun n0 -> match l with
               | [] -> []
               | a :: l0 -> a :: (firstn n0 l0))
    n

(** val nodup : ('a1 -> 'a1 -> bool) -> 'a1 list -> 'a1 list **)

let rec nodup decA = function
| [] -> []
| x :: xs -> if in_dec decA x xs then nodup decA xs else x :: (nodup decA xs)

(** val seq : int -> int -> int list **)

let rec seq start len =
  (fun fO fS n -> if n=0 then fO () else fS (n-1))
    (fun _ -> [])
    (fun len0 -> start :: (seq (Stdlib.Int.succ start) len0))
    len

(** val items : int -> int list **)

let items m =
  seq 0 m

(** val at_least :
    int -> (int -> Big_int_Z.big_int) -> Big_int_Z.big_int -> int **)

let at_least m h t =
  length (filter (fun i -> Z.leb t (h i)) (items m))

type vec = int -> Big_int_Z.big_int

(** val vadd : vec -> vec -> vec **)

let vadd u v i =
  Z.add (u i) (v i)

(** val vzero : vec **)

let vzero _ =
  Big_int_Z.zero_big_int

(** val total : ('a1 -> vec) -> 'a1 list -> vec **)

let rec total f = function
| [] -> vzero
| r :: rest -> vadd (f r) (total f rest)

(** val sparse : (int * Big_int_Z.big_int) list -> vec **)

let rec sparse = function
| [] -> vzero
| p0 :: r -> (fun i -> let (p, a) = p0 in if (=) i p then a else sparse r i)

(** val cell : int -> int -> int -> int -> int -> int **)

let cell b w y b0 i =
  add (mul (add (mul y b) b0) w) i

(** val k : int -> int -> int -> int **)

let k b w l =
  add (mul (mul l b) w) l

(** val entries :
    int -> int -> int -> int -> (int -> int) -> (int -> Big_int_Z.big_int) ->
    Big_int_Z.big_int -> (int * Big_int_Z.big_int) list **)

let entries b w l y at_ val0 w0 =
  ((add (mul (mul l b) w) y),
    w0) :: (map (fun b0 -> ((cell b w y b0 (at_ b0)), (val0 b0))) (seq 0 b))

(** val feat :
    int -> int -> int -> Big_int_Z.big_int -> ('a1 -> int) -> ('a1 -> int ->
    int) -> ('a1 -> int -> Big_int_Z.big_int) -> 'a1 -> vec **)

let feat b w l w0 label at_ val0 r =
  sparse (entries b w l (label r) (at_ r) (val0 r) w0)

(** val race :
    int -> int -> int -> Big_int_Z.big_int -> ('a1 -> int) -> ('a1 -> int ->
    int) -> 'a1 -> vec **)

let race rep w l w0 label hash r =
  sparse
    (entries rep w l (label r) (hash r) (fun _ -> Big_int_Z.unit_big_int) w0)

(** val node : int -> ('a1 -> int -> int) -> 'a1 -> int -> int **)

let node h leaf r b =
  Nat.div (leaf r (Nat.div b (Stdlib.Int.succ h)))
    (Nat.pow (Stdlib.Int.succ (Stdlib.Int.succ 0))
      (sub h (Nat.modulo b (Stdlib.Int.succ h))))

(** val tree :
    int -> int -> int -> (int -> Big_int_Z.big_int) -> ('a1 -> int) -> ('a1
    -> int -> int) -> 'a1 -> vec **)

let tree h d l u label leaf r =
  feat (mul d (Stdlib.Int.succ h))
    (Nat.pow (Stdlib.Int.succ (Stdlib.Int.succ 0)) h) l
    Big_int_Z.zero_big_int label (node h leaf) (fun _ b ->
    u (Nat.div b (Stdlib.Int.succ h))) r

(** val plus_minus : bool -> Big_int_Z.big_int **)

let plus_minus = function
| true -> Big_int_Z.unit_big_int
| false -> Big_int_Z.minus_big_int Big_int_Z.unit_big_int

(** val threshold :
    int -> int -> Big_int_Z.big_int -> ('a1 -> int) -> ('a1 -> int -> bool)
    -> 'a1 -> vec **)

let threshold m l w label sign r =
  feat m (Stdlib.Int.succ 0) l w label (fun _ _ -> 0) (fun r0 t ->
    plus_minus (sign r0 t)) r

(** val insert : ('a1 -> 'a1 -> bool) -> 'a1 -> 'a1 list -> 'a1 list **)

let rec insert le x l = match l with
| [] -> x :: []
| y :: r -> if le x y then x :: l else y :: (insert le x r)

(** val sort : ('a1 -> 'a1 -> bool) -> 'a1 list -> 'a1 list **)

let sort le l =
  fold_right (insert le) [] l

type ('person, 'row) data = ('person * 'row) list

(** val rows_of :
    ('a1 -> 'a1 -> bool) -> 'a1 -> ('a1, 'a2) data -> 'a2 list **)

let rows_of eqP p ds =
  map snd (filter (fun e -> if eqP p (fst e) then true else false) ds)

(** val keep : ('a1 -> 'a1 -> bool) -> int -> 'a1 list -> 'a1 list **)

let keep le k0 l =
  firstn k0 (sort le l)

(** val persons : ('a1 -> 'a1 -> bool) -> ('a1, 'a2) data -> 'a1 list **)

let persons eqP ds =
  nodup eqP (map fst ds)

(** val kept :
    ('a1 -> 'a1 -> bool) -> ('a2 -> 'a2 -> bool) -> int -> ('a1, 'a2) data ->
    ('a1, 'a2) data **)

let kept eqP le k0 ds =
  flat_map (fun p -> map (fun x -> (p, x)) (keep le k0 (rows_of eqP p ds)))
    (persons eqP ds)

(** val zs : Big_int_Z.big_int list -> Big_int_Z.big_int **)

let zs l =
  fold_right Z.add Big_int_Z.zero_big_int l

(** val zmax : Big_int_Z.big_int list -> Big_int_Z.big_int **)

let zmax l =
  fold_right Z.max Big_int_Z.zero_big_int l

(** val enough :
    Big_int_Z.big_int -> Big_int_Z.big_int list -> Big_int_Z.big_int **)

let enough c l =
  Z.max (zmax l) (Z.div (Z.sub (Z.add (zs l) c) Big_int_Z.unit_big_int) c)

(** val fewest_steps :
    Big_int_Z.big_int -> Big_int_Z.big_int list -> Big_int_Z.big_int **)

let fewest_steps c l =
  Z.add (enough c (map (fun x -> Z.max Big_int_Z.zero_big_int x) l))
    (enough c (map (fun x -> Z.max Big_int_Z.zero_big_int (Z.opp x)) l))

(** val cells_of : int -> vec -> Big_int_Z.big_int list **)

let cells_of k0 v =
  map v (seq 0 k0)

(** val race_cells :
    int -> int -> int -> Big_int_Z.big_int -> (int -> int) -> (int -> int ->
    int) -> int -> Big_int_Z.big_int list **)

let race_cells rep w l w0 label hash n =
  cells_of (k rep w l) (total (race rep w l w0 label hash) (seq 0 n))

(** val leaf_of :
    Big_int_Z.big_int -> Big_int_Z.big_int -> int -> Big_int_Z.big_int -> int **)

let leaf_of lower span h x =
  Z.to_nat
    (Z.div
      (Z.mul (Z.sub x lower)
        (Z.pow (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int)
          (Z.of_nat h))) span)

(** val tree_cells :
    int -> int -> int -> (int -> Big_int_Z.big_int) -> (int ->
    Big_int_Z.big_int) -> (int -> Big_int_Z.big_int) -> (int -> int) -> (int
    -> int -> Big_int_Z.big_int) -> int -> Big_int_Z.big_int list **)

let tree_cells h d l u lower span label x n =
  cells_of
    (k (mul d (Stdlib.Int.succ h))
      (Nat.pow (Stdlib.Int.succ (Stdlib.Int.succ 0)) h) l)
    (total
      (tree h d l u label (fun r j -> leaf_of (lower j) (span j) h (x r j)))
      (seq 0 n))

(** val threshold_cells :
    int -> int -> Big_int_Z.big_int -> (int -> int) -> (int -> int -> bool)
    -> int -> Big_int_Z.big_int list **)

let threshold_cells m l w label sign n =
  cells_of (k m (Stdlib.Int.succ 0) l)
    (total (threshold m l w label sign) (seq 0 n))

(** val first_of :
    Big_int_Z.big_int -> Big_int_Z.big_int -> int -> Big_int_Z.big_int ->
    Big_int_Z.big_int **)

let first_of lower span l i =
  Z.add lower
    (Z.opp
      (Z.div (Z.opp (Z.mul i span))
        (Z.pow (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int)
          (Z.of_nat l))))

(** val moment_cells :
    int -> int -> int -> int -> (int -> int -> int -> Big_int_Z.big_int) ->
    (int -> Big_int_Z.big_int) -> (int -> Big_int_Z.big_int) -> (int -> int)
    -> (int -> int -> Big_int_Z.big_int) -> int -> Big_int_Z.big_int list **)

let moment_cells h d l p u lower span label x n =
  let col = fun b -> Nat.div b (mul h (Stdlib.Int.succ p)) in
  let lev = fun b -> Stdlib.Int.succ
    (Nat.modulo (Nat.div b (Stdlib.Int.succ p)) h)
  in
  let ord = fun b -> Nat.modulo b (Stdlib.Int.succ p) in
  let at_ = fun r b ->
    Nat.div (leaf_of (lower (col b)) (span (col b)) h (x r (col b)))
      (Nat.pow (Stdlib.Int.succ (Stdlib.Int.succ 0)) (sub h (lev b)))
  in
  let val0 = fun r b ->
    let i = Z.of_nat (at_ r b) in
    let a = first_of (lower (col b)) (span (col b)) (lev b) i in
    let z0 =
      first_of (lower (col b)) (span (col b)) (lev b)
        (Z.add i Big_int_Z.unit_big_int)
    in
    Z.mul (u (col b) (lev b) (ord b))
      (Z.pow
        (Z.sub
          (Z.mul (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int)
            (x r (col b)))
          (Z.sub
            (Z.add
              (Z.mul (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) a)
              (Z.sub z0 a)) Big_int_Z.unit_big_int)) (Z.of_nat (ord b)))
  in
  cells_of
    (k (mul d (mul h (Stdlib.Int.succ p)))
      (Nat.pow (Stdlib.Int.succ (Stdlib.Int.succ 0)) h) l)
    (total
      (feat (mul d (mul h (Stdlib.Int.succ p)))
        (Nat.pow (Stdlib.Int.succ (Stdlib.Int.succ 0)) h) l
        Big_int_Z.zero_big_int label at_ val0) (seq 0 n))

(** val kthb :
    int -> (int -> Big_int_Z.big_int) -> int -> Big_int_Z.big_int -> bool **)

let kthb m h j v =
  (&&) ((<=) j (at_least m h v))
    (Nat.ltb (at_least m h (Z.add v Big_int_Z.unit_big_int)) j)

(** val nodupb : int list -> bool **)

let rec nodupb = function
| [] -> true
| x :: r -> (&&) (negb (existsb ((=) x) r)) (nodupb r)

(** val memb : int -> int list -> bool **)

let memb x l =
  existsb ((=) x) l

(** val topb :
    int -> (int -> Big_int_Z.big_int) -> int -> int list -> bool **)

let topb m h k0 t =
  (&&)
    ((&&) ((&&) (nodupb t) ((=) (length t) k0))
      (forallb (fun x -> Nat.ltb x m) t))
    (forallb (fun x ->
      forallb (fun y -> (||) (memb y t) (Z.leb (h y) (h x))) (seq 0 m)) t)

(** val products :
    int -> (int -> Big_int_Z.big_int) -> Big_int_Z.big_int list **)

let products n z0 =
  flat_map (fun j ->
    map (fun i -> Z.mul (z0 i) (z0 j)) (seq 0 (Stdlib.Int.succ j))) (seq 0 n)

(** val kept_rows :
    int -> (int * Big_int_Z.big_int) list -> (int * Big_int_Z.big_int) list **)

let kept_rows k0 rows =
  kept (=) Z.leb k0 rows

(** val kth_value :
    int -> (int -> Big_int_Z.big_int) -> int -> Big_int_Z.big_int **)

let kth_value m h j =
  match find (kthb m h j) (map h (seq 0 m)) with
  | Some v -> v
  | None -> Big_int_Z.zero_big_int

(** val kept_gap :
    Big_int_Z.big_int option -> Big_int_Z.big_int -> Big_int_Z.big_int **)

let kept_gap ceiling g =
  match ceiling with
  | Some c -> Z.min g c
  | None -> g

(** val utility :
    int -> (int -> Big_int_Z.big_int) -> Big_int_Z.big_int option -> (int ->
    Big_int_Z.big_int) -> int -> Big_int_Z.big_int **)

let utility m h ceiling penalty j =
  Z.sub
    (kept_gap ceiling
      (Z.sub (kth_value m h j) (kth_value m h (Stdlib.Int.succ j))))
    (penalty j)

(** val utilities :
    int -> int -> (int -> Big_int_Z.big_int) -> Big_int_Z.big_int option ->
    (int -> Big_int_Z.big_int) -> Big_int_Z.big_int list **)

let utilities m k0 h ceiling penalty =
  map (utility m h ceiling penalty) (seq (Stdlib.Int.succ 0) k0)

(** val penalty_of :
    Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int -> int ->
    Big_int_Z.big_int **)

let penalty_of num den k0 j =
  Z.div (Z.mul num (Z.abs (Z.sub (Z.of_nat j) k0))) den

(** val absent :
    Big_int_Z.big_int list -> Big_int_Z.big_int -> Big_int_Z.big_int **)

let rec absent items0 r =
  match items0 with
  | [] -> r
  | x :: l ->
    if Z.leb x r then absent l (Z.add r Big_int_Z.unit_big_int) else r

(** val settle :
    Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int ->
    Big_int_Z.big_int -> Big_int_Z.big_int -> int ->
    ((Big_int_Z.big_int * Big_int_Z.big_int) * Big_int_Z.big_int) list -> int
    option **)

let rec settle b surely surely_not low high g = function
| [] -> None
| p :: r ->
  let (p0, hi) = p in
  let (n, lo) = p0 in
  let low' = Z.add low (Z.mul n lo) in
  let high' = Z.add high (Z.mul n hi) in
  if Z.leb surely (Z.mul low' b)
  then if Z.leb (Z.mul high b) surely_not then Some g else None
  else settle b surely surely_not low' high' (Stdlib.Int.succ g) r

(** val lowest :
    ((Big_int_Z.big_int * Big_int_Z.big_int) * Big_int_Z.big_int) list ->
    Big_int_Z.big_int **)

let rec lowest = function
| [] -> Big_int_Z.zero_big_int
| p :: r ->
  let (p0, _) = p in let (n, lo) = p0 in Z.add (Z.mul n lo) (lowest r)

(** val highest :
    ((Big_int_Z.big_int * Big_int_Z.big_int) * Big_int_Z.big_int) list ->
    Big_int_Z.big_int **)

let rec highest = function
| [] -> Big_int_Z.zero_big_int
| p :: r ->
  let (p0, hi) = p in let (n, _) = p0 in Z.add (Z.mul n hi) (highest r)

(** val settled :
    Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int ->
    ((Big_int_Z.big_int * Big_int_Z.big_int) * Big_int_Z.big_int) list -> int
    option **)

let settled bits drawn far l =
  settle (Z.pow (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) bits)
    (Z.mul (Z.add drawn Big_int_Z.unit_big_int) (Z.add (highest l) far))
    (Z.mul drawn (lowest l)) Big_int_Z.zero_big_int Big_int_Z.zero_big_int 0 l

type claim = (Big_int_Z.big_int * Big_int_Z.big_int) * Big_int_Z.big_int

(** val blocks_claim :
    Big_int_Z.big_int list -> Big_int_Z.big_int -> claim **)

let blocks_claim ds w =
  (((Z.add (zs ds) w),
    (Z.add (zs (map (fun x -> Z.mul x x) ds)) (Z.mul w w))),
    (Z.max (zmax ds) w))

(** val products_claim :
    int -> Big_int_Z.big_int -> Big_int_Z.big_int option -> claim **)

let products_claim d a ball =
  let box = Z.mul (Z.add (Z.of_nat d) Big_int_Z.unit_big_int) (Z.mul a a) in
  let n = match ball with
          | Some b -> Z.min box b
          | None -> box in
  let v = Z.sqrt (Z.mul (Z.add (Z.of_nat d) Big_int_Z.unit_big_int) n) in
  let m = Z.min (Z.mul a a) n in
  (((Z.div (Z.add (Z.mul v v) n) (Big_int_Z.mult_int_big_int 2
      Big_int_Z.unit_big_int)),
  (Z.div (Z.add (Z.mul n n) (Z.mul m n)) (Big_int_Z.mult_int_big_int 2
    Big_int_Z.unit_big_int))), m)

(** val after_chain :
    Big_int_Z.big_int list -> Big_int_Z.big_int -> Big_int_Z.big_int **)

let after_chain factors d =
  fold_left Z.mul factors d

(** val fourier_claim :
    int -> Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int ->
    Big_int_Z.big_int -> claim **)

let fourier_claim d a q m w =
  (((Z.add (Z.mul (Z.of_nat d) a) w),
    (Z.add (Z.mul (Z.of_nat d) q) (Z.mul w w))), (Z.max m w))

(** val digit_sum : int -> int -> int -> int **)

let rec digit_sum r d e =
  (fun fO fS n -> if n=0 then fO () else fS (n-1))
    (fun _ -> 0)
    (fun d' -> add (Nat.modulo e r) (digit_sum r d' (Nat.div e r)))
    d

(** val gauss_most : int -> int -> int -> int -> Big_int_Z.big_int **)

let gauss_most q r d e =
  Z.div
    (Z.pow (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) (Z.of_nat q))
    (Z.pow (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int)
      (Z.of_nat (digit_sum r d e)))

(** val gauss_table : int -> int -> int -> Big_int_Z.big_int list **)

let gauss_table q r d =
  map (gauss_most q r d) (seq 0 (Nat.pow r d))

(** val gauss_claim : int -> int -> int -> Big_int_Z.big_int -> claim **)

let gauss_claim q r d w =
  blocks_claim (gauss_table q r d) w

(** val moments_claim :
    Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int ->
    Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int ->
    Big_int_Z.big_int -> claim **)

let moments_claim u0 u1 u2 t b2 s m =
  let q =
    Z.mul u2
      (Z.div b2
        (Z.pow (Big_int_Z.mult_int_big_int 2 Big_int_Z.unit_big_int) t))
  in
  (((Z.add (Z.add (Z.mul u1 s) q) u0),
  (Z.add (Z.add (Z.mul (Z.mul u1 u1) b2) (Z.mul q q)) (Z.mul u0 u0))),
  (Z.max (Z.max (Z.mul u1 m) q) u0))
