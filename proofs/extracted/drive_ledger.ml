(* Reads one request a line and writes one answer a line: purses, and the two machines of ledger.v with one state at a time.
   All numbers are zarith's integers. An answer of the machine: whether the step is allowed, the sum, the number of
   entries, the public files (of a store: the answers that left). *)
module BZ = Z
module BL = Stdlib.List
open Ledger
module Z = BZ
module List = BL
let words = ref []
let next () = match !words with w :: r -> words := r; w | [] -> failwith "a request is too short"
let z () = Z.of_string (next ())
let state = ref init
let limit = ref Z.zero
let store = ref store_start
let step name = let t = z () in match name with
  | "start" -> LStart (t, z ()) | "commit" -> LCommit (t, z ()) | "retry" -> LRetry (t, z ())
  | "ack" -> LAck t | "refuse" -> LRefuse t | "left" -> LLeft t | "stage" -> LStage (t, z ())
  | "settle" -> LSettle (t, z ()) | "again" -> LAgain (t, z ()) | "publish" -> LPublish (t, z ())
  | "crash" -> LCrash t | w -> failwith w
let answer () = match next () with
  | "purse" -> let u = z () in let n = int_of_string (next ()) in
     print_endline (Z.to_string (purse_after u (List.init n (fun _ -> z ()))))
  | "store" -> limit := z (); store := store_start; print_endline "ok"
  | "ask" | "write" | "found" | "answer" | "die" as name -> let label = match name with
       | "ask" -> let price = z () in Ask (price, z ()) | "write" -> Write | "found" -> Found | "answer" -> Answer
       | _ -> Die in
     let allowed = match store_exec !limit label !store with Some s -> store := s; true | None -> false in
     Printf.printf "%b %s %d %s\n" allowed (Z.to_string (charges !store.entries)) (List.length !store.entries)
       (String.concat "," (List.rev_map (fun (_, a) -> Z.to_string a) !store.answered))
  | "limit" -> limit := z (); state := init; print_endline "ok"
  | name -> let allowed = match exec !limit (step name) !state with Some s -> state := s; true | None -> false in
     let files = List.rev_map (fun (t, c) -> Z.to_string t ^ ":" ^ Z.to_string c) !state.public in
     Printf.printf "%b %s %d %s\n" allowed (Z.to_string (spent !state.ledger)) (List.length !state.ledger)
       (String.concat "," files)
let () = try while true do
  words := List.filter (fun w -> w <> "") (String.split_on_char ' ' (input_line stdin)); answer (); flush stdout
  done with End_of_file -> ()
