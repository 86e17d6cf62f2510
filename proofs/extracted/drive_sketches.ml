(* Reads one request a line and writes one answer a line: sketches, distances of votes, ranks, kept rows, draws, claims.
   Places are OCaml's int (below 2^20 in every test), cells and counts are zarith's integers. *)
module BZ = Z
module BL = Stdlib.List
open Sketches
module Z = BZ
module List = BL
let words = ref []
let next () = match !words with w :: r -> words := r; w | [] -> failwith "a request is too short"
let i () = int_of_string (next ())
let z () = Z.of_string (next ())
let arr f n = Array.init n (fun _ -> f ())
let out l = print_endline (String.concat " " (List.map Z.to_string l))
let table x d r j = x.(r * d + j)
let answer () = match next () with
  | "steps" -> let c = z () in let n = i () in out [fewest_steps c (Array.to_list (arr z n))]
  | "race" -> let rep = i () in let w = i () in let l = i () in let wt = z () in let n = i () in
     let lab = arr i n in let h = arr i (n * rep) in
     out (race_cells rep w l wt (Array.get lab) (table h rep) n)
  | "tree" -> let h = i () in let d = i () in let l = i () in let u = arr z d in let lo = arr z d in let sp = arr z d in
     let n = i () in let lab = arr i n in let x = arr z (n * d) in
     out (tree_cells h d l (Array.get u) (Array.get lo) (Array.get sp) (Array.get lab) (table x d) n)
  | "threshold" -> let m = i () in let l = i () in let wt = z () in let n = i () in let lab = arr i n in
     let s = arr i (n * m) in out (threshold_cells m l wt (Array.get lab) (fun r t -> table s m r t = 1) n)
  | "moment" -> let h = i () in let d = i () in let l = i () in let p = i () in let u = arr z (d * h * (p + 1)) in
     let lo = arr z d in let sp = arr z d in let n = i () in let lab = arr i n in let x = arr z (n * d) in
     out (moment_cells h d l p (fun c v o -> u.((c * h + v - 1) * (p + 1) + o)) (Array.get lo) (Array.get sp)
       (Array.get lab) (table x d) n)
  | "products" -> let n = i () in let x = arr z n in out (products n (Array.get x))
  | "kept" -> let k = i () in let n = i () in let rows = arr (fun () -> let p = i () in let r = z () in (p, r)) n in
     out (List.concat_map (fun (p, r) -> [Z.of_int p; r]) (kept_rows k (Array.to_list rows)))
  | "rank" -> let m = i () in let h = arr z m in let k = i () in let p = z () in let q = z () in
     let t = Array.to_list (arr i k) in let f x = if x < m then h.(x) else Z.zero in
     Printf.printf "%b %b %b\n" (topb m f k t) (kthb m f k p) (kthb m f (k + 1) q)
  | "utilities" -> let m = i () in let top = i () in let h = arr z m in let most = z () in let num = z () in let den = z () in
     let k = z () in let ceiling = if Z.sign most < 0 then None else Some most in
     out (utilities m top (fun x -> if x < m then h.(x) else Z.zero) ceiling (penalty_of num den k))
  | "absent" -> let n = i () in let items = arr z n in out [absent (Array.to_list items) (z ())]
  | "settled" -> let bits = z () in let drawn = z () in let far = z () in let n = i () in
     let l = arr (fun () -> let size = z () in let lo = z () in let hi = z () in ((size, lo), hi)) n in
     out [match settled bits drawn far (Array.to_list l) with Some g -> Z.of_int g | None -> Z.minus_one]
  | "claim" -> let triple ((a, b), c) = out [a; b; c] in (match next () with
     | "blocks" -> let n = i () in let l = arr z n in triple (blocks_claim (Array.to_list l) (z ()))
     | "products" -> let d = i () in let a = z () in let b = z () in
        triple (products_claim d a (if Z.sign b < 0 then None else Some b))
     | "fourier" -> let d = i () in let a = z () in let q = z () in let m = z () in triple (fourier_claim d a q m (z ()))
     | "gauss" -> let q = i () in let r = i () in let d = i () in triple (gauss_claim q r d (z ()))
     | "moments" -> let a = arr z 7 in triple (moments_claim a.(0) a.(1) a.(2) a.(3) a.(4) a.(5) a.(6))
     | w -> failwith w)
  | "chain" -> let n = i () in let l = arr z n in out [after_chain (Array.to_list l) (z ())]
  | w -> failwith w
let () = try while true do
  words := List.filter (fun w -> w <> "") (String.split_on_char ' ' (input_line stdin)); answer (); flush stdout
  done with End_of_file -> ()
