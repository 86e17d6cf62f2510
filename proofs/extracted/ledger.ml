
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

(** val length : 'a1 list -> Big_int_Z.big_int **)

let rec length = function
| [] -> Big_int_Z.zero_big_int
| _ :: l' -> Big_int_Z.succ_big_int (length l')

(** val app : 'a1 list -> 'a1 list -> 'a1 list **)

let rec app l m =
  match l with
  | [] -> m
  | a :: l1 -> a :: (app l1 m)

(** val add : Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

let rec add = Big_int_Z.add_big_int

(** val sub : Big_int_Z.big_int -> Big_int_Z.big_int -> Big_int_Z.big_int **)

let rec sub = (fun n m -> Big_int_Z.max_big_int Big_int_Z.zero_big_int
  (Big_int_Z.sub_big_int n m))

module Nat =
 struct
  (** val eqb : Big_int_Z.big_int -> Big_int_Z.big_int -> bool **)

  let rec eqb = Big_int_Z.eq_big_int

  (** val leb : Big_int_Z.big_int -> Big_int_Z.big_int -> bool **)

  let rec leb = Big_int_Z.le_big_int
 end

(** val nth : Big_int_Z.big_int -> 'a1 list -> 'a1 -> 'a1 **)

let rec nth n l default =
  (fun fO fS n -> if Big_int_Z.sign_big_int n <= 0 then fO ()
  else fS (Big_int_Z.pred_big_int n))
    (fun _ -> match l with
              | [] -> default
              | x :: _ -> x)
    (fun m -> match l with
              | [] -> default
              | _ :: t -> nth m t default)
    n

(** val existsb : ('a1 -> bool) -> 'a1 list -> bool **)

let rec existsb f = function
| [] -> false
| a :: l0 -> (||) (f a) (existsb f l0)

(** val repeat : 'a1 -> Big_int_Z.big_int -> 'a1 list **)

let rec repeat x n =
  (fun fO fS n -> if Big_int_Z.sign_big_int n <= 0 then fO ()
  else fS (Big_int_Z.pred_big_int n))
    (fun _ -> [])
    (fun k -> x :: (repeat x k))
    n

type token = Big_int_Z.big_int

type content = Big_int_Z.big_int

type entry =
| Reserve of token * Big_int_Z.big_int
| Charge of token * content
| Refusal of token

type proc =
| Asking of token * Big_int_Z.big_int
| Gate of token
| Drawn of token

type state = { ledger : entry list; folder : (token * content) list;
               public : (token * content) list; used : token list;
               procs : proc list }

(** val init : state **)

let init =
  { ledger = []; folder = []; public = []; used = []; procs = [] }

(** val has_refusal : entry list -> token -> bool **)

let has_refusal l t =
  existsb (fun e -> match e with
                    | Refusal u -> Nat.eqb t u
                    | _ -> false) l

(** val sum_from : entry list -> entry list -> Big_int_Z.big_int **)

let rec sum_from l all =
  match l with
  | [] -> Big_int_Z.zero_big_int
  | e :: r ->
    (match e with
     | Reserve (t, x) ->
       add (if has_refusal all t then Big_int_Z.zero_big_int else x)
         (sum_from r all)
     | _ -> sum_from r all)

(** val spent : entry list -> Big_int_Z.big_int **)

let spent l =
  sum_from l l

(** val tok : proc -> token **)

let tok = function
| Asking (t, _) -> t
| Gate t -> t
| Drawn t -> t

type store = { entries : (Big_int_Z.big_int * Big_int_Z.big_int) list;
               waiting : ((Big_int_Z.big_int * Big_int_Z.big_int)
                         list * (Big_int_Z.big_int * Big_int_Z.big_int))
                         option;
               answered : (Big_int_Z.big_int * Big_int_Z.big_int) list }

(** val charges :
    (Big_int_Z.big_int * Big_int_Z.big_int) list -> Big_int_Z.big_int **)

let rec charges = function
| [] -> Big_int_Z.zero_big_int
| e :: r -> add (fst e) (charges r)

(** val purse :
    Big_int_Z.big_int -> ('a1 -> 'a2 list -> Big_int_Z.big_int) -> 'a1 -> 'a2
    list -> Big_int_Z.big_int **)

let rec purse u price_of r = function
| [] -> u
| _ :: q ->
  let u0 = purse u price_of r q in
  if Nat.leb (price_of r q) u0 then sub u0 (price_of r q) else u0

(** val memb : Big_int_Z.big_int -> Big_int_Z.big_int list -> bool **)

let memb x l =
  existsb (Nat.eqb x) l

(** val purse_after :
    Big_int_Z.big_int -> Big_int_Z.big_int list -> Big_int_Z.big_int **)

let purse_after u prices =
  purse u (fun _ p -> nth (length p) prices Big_int_Z.zero_big_int)
    Big_int_Z.zero_big_int (repeat Big_int_Z.zero_big_int (length prices))

type label =
| LStart of Big_int_Z.big_int * Big_int_Z.big_int
| LCommit of Big_int_Z.big_int * Big_int_Z.big_int
| LRetry of Big_int_Z.big_int * Big_int_Z.big_int
| LAck of Big_int_Z.big_int
| LRefuse of Big_int_Z.big_int
| LLeft of Big_int_Z.big_int
| LStage of Big_int_Z.big_int * Big_int_Z.big_int
| LSettle of Big_int_Z.big_int * Big_int_Z.big_int
| LAgain of Big_int_Z.big_int * Big_int_Z.big_int
| LPublish of Big_int_Z.big_int * Big_int_Z.big_int
| LCrash of Big_int_Z.big_int

(** val cut :
    (proc -> bool) -> proc list -> ((proc list * proc) * proc list) option **)

let rec cut f = function
| [] -> None
| p :: r ->
  if f p
  then Some (([], p), r)
  else (match cut f r with
        | Some p0 ->
          let (p1, b) = p0 in let (a, q) = p1 in Some (((p :: a), q), b)
        | None -> None)

(** val is_ask : Big_int_Z.big_int -> proc -> bool **)

let is_ask t = function
| Asking (u, _) -> Nat.eqb u t
| _ -> false

(** val is_ask2 : Big_int_Z.big_int -> Big_int_Z.big_int -> proc -> bool **)

let is_ask2 t x = function
| Asking (u, y) -> (&&) (Nat.eqb u t) (Nat.eqb y x)
| _ -> false

(** val is_gate : Big_int_Z.big_int -> proc -> bool **)

let is_gate t = function
| Gate u -> Nat.eqb u t
| _ -> false

(** val is_drawn : Big_int_Z.big_int -> proc -> bool **)

let is_drawn t = function
| Drawn u -> Nat.eqb u t
| _ -> false

(** val is_tok : Big_int_Z.big_int -> proc -> bool **)

let is_tok t p =
  Nat.eqb (tok p) t

(** val reservedb : entry list -> Big_int_Z.big_int -> bool **)

let reservedb l t =
  existsb (fun e -> match e with
                    | Reserve (u, _) -> Nat.eqb t u
                    | _ -> false) l

(** val chargedb : entry list -> Big_int_Z.big_int -> bool **)

let chargedb l t =
  existsb (fun e -> match e with
                    | Charge (u, _) -> Nat.eqb t u
                    | _ -> false) l

(** val charged_as :
    entry list -> Big_int_Z.big_int -> Big_int_Z.big_int -> bool **)

let charged_as l t c =
  existsb (fun e ->
    match e with
    | Charge (u, d) -> (&&) (Nat.eqb t u) (Nat.eqb c d)
    | _ -> false) l

(** val in_folder :
    state -> Big_int_Z.big_int -> Big_int_Z.big_int -> bool **)

let in_folder s t c =
  existsb (fun e -> (&&) (Nat.eqb (fst e) t) (Nat.eqb (snd e) c)) s.folder

(** val with_procs : state -> proc list -> state **)

let with_procs s p =
  { ledger = s.ledger; folder = s.folder; public = s.public; used = s.used;
    procs = p }

(** val with_ledger : state -> entry -> state **)

let with_ledger s e =
  { ledger = (e :: s.ledger); folder = s.folder; public = s.public; used =
    s.used; procs = s.procs }

(** val exec : Big_int_Z.big_int -> label -> state -> state option **)

let exec lIMIT l s =
  match l with
  | LStart (t, x) ->
    if memb t s.used
    then None
    else Some { ledger = s.ledger; folder = s.folder; public = s.public;
           used = (t :: s.used); procs = ((Asking (t, x)) :: s.procs) }
  | LCommit (t, x) ->
    if (&&)
         ((&&) (existsb (is_ask2 t x) s.procs) (negb (reservedb s.ledger t)))
         (Nat.leb (add (spent s.ledger) x) lIMIT)
    then Some (with_ledger s (Reserve (t, x)))
    else None
  | LRetry (t, x) ->
    if (&&) (existsb (is_ask2 t x) s.procs) (reservedb s.ledger t)
    then Some s
    else None
  | LAck t ->
    if reservedb s.ledger t
    then (match cut (is_ask t) s.procs with
          | Some p ->
            let (p0, b) = p in
            let (a, _) = p0 in Some (with_procs s (app a ((Gate t) :: b)))
          | None -> None)
    else None
  | LRefuse t ->
    (match cut (is_gate t) s.procs with
     | Some p ->
       let (p0, b) = p in
       let (a, _) = p0 in
       Some { ledger = ((Refusal t) :: s.ledger); folder = s.folder; public =
       s.public; used = s.used; procs = (app a b) }
     | None -> None)
  | LLeft t ->
    (match cut (is_gate t) s.procs with
     | Some p ->
       let (p0, b) = p in
       let (a, _) = p0 in Some (with_procs s (app a ((Drawn t) :: b)))
     | None -> None)
  | LStage (t, c) ->
    (match cut (is_drawn t) s.procs with
     | Some p ->
       let (p0, b) = p in
       let (a, _) = p0 in
       Some { ledger = s.ledger; folder = ((t, c) :: s.folder); public =
       s.public; used = s.used; procs = (app a b) }
     | None -> None)
  | LSettle (t, c) ->
    if (&&) (in_folder s t c) (negb (chargedb s.ledger t))
    then Some (with_ledger s (Charge (t, c)))
    else None
  | LAgain (t, c) ->
    if (&&) (in_folder s t c) (chargedb s.ledger t) then Some s else None
  | LPublish (t, c) ->
    if (&&) (charged_as s.ledger t c) (in_folder s t c)
    then Some { ledger = s.ledger; folder = s.folder; public = ((t,
           c) :: s.public); used = s.used; procs = s.procs }
    else None
  | LCrash t ->
    (match cut (is_tok t) s.procs with
     | Some p ->
       let (p0, b) = p in let (a, _) = p0 in Some (with_procs s (app a b))
     | None -> None)

type store_label =
| Ask of Big_int_Z.big_int * Big_int_Z.big_int
| Write
| Found
| Answer
| Die

(** val pair_eq :
    (Big_int_Z.big_int * Big_int_Z.big_int) ->
    (Big_int_Z.big_int * Big_int_Z.big_int) -> bool **)

let pair_eq e f =
  (&&) (Nat.eqb (fst e) (fst f)) (Nat.eqb (snd e) (snd f))

(** val list_eq :
    (Big_int_Z.big_int * Big_int_Z.big_int) list ->
    (Big_int_Z.big_int * Big_int_Z.big_int) list -> bool **)

let rec list_eq l m =
  match l with
  | [] -> (match m with
           | [] -> true
           | _ :: _ -> false)
  | e :: l' ->
    (match m with
     | [] -> false
     | f :: m' -> (&&) (pair_eq e f) (list_eq l' m'))

(** val store_start : store **)

let store_start =
  { entries = []; waiting = None; answered = [] }

(** val store_exec :
    Big_int_Z.big_int -> store_label -> store -> store option **)

let store_exec u l s =
  match l with
  | Ask (x, a) ->
    (match s.waiting with
     | Some _ -> None
     | None ->
       if Nat.leb x (sub u (charges s.entries))
       then Some { entries = s.entries; waiting = (Some (s.entries, (x, a)));
              answered = s.answered }
       else None)
  | Write ->
    (match s.waiting with
     | Some p ->
       let (h, e) = p in
       if list_eq s.entries h
       then Some { entries = (e :: s.entries); waiting = s.waiting;
              answered = s.answered }
       else None
     | None -> None)
  | Found ->
    (match s.waiting with
     | Some p ->
       let (h, e) = p in if list_eq s.entries (e :: h) then Some s else None
     | None -> None)
  | Answer ->
    (match s.waiting with
     | Some p ->
       let (h, e) = p in
       if list_eq s.entries (e :: h)
       then Some { entries = s.entries; waiting = None; answered =
              (e :: s.answered) }
       else None
     | None -> None)
  | Die -> Some { entries = s.entries; waiting = None; answered = s.answered }
