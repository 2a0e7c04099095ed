;; Answers {"message": "hello"}: a core module that `uncia-wasm assemble` makes a component of, for
;; wasi:http/incoming-handler. What each import means is in crates/wasm/wit/handler.wit.
(module
  (import "wasi:http/types@0.2.0" "[static]fields.from-list"
    (func $fields (param i32 i32 i32)))
  (import "wasi:http/types@0.2.0" "[constructor]outgoing-response"
    (func $response (param i32) (result i32)))
  (import "wasi:http/types@0.2.0" "[method]outgoing-response.body"
    (func $body (param i32 i32)))
  (import "wasi:http/types@0.2.0" "[static]response-outparam.set"
    (func $answer (param i32 i32 i32 i32 i64 i32 i32 i32 i32)))
  (import "wasi:http/types@0.2.0" "[method]outgoing-body.write"
    (func $write (param i32 i32)))
  (import "wasi:io/streams@0.2.0" "[method]output-stream.blocking-write-and-flush"
    (func $send (param i32 i32 i32 i32)))
  (import "wasi:io/streams@0.2.0" "[resource-drop]output-stream"
    (func $close (param i32)))
  (import "wasi:http/types@0.2.0" "[static]outgoing-body.finish"
    (func $finish (param i32 i32 i32 i32)))
  (import "wasi:http/types@0.2.0" "[resource-drop]incoming-request"
    (func $drop-request (param i32)))

  (memory (export "memory") 1)
  ;; One header: pointers to its name and value, with their lengths.
  (data (i32.const 16) "\40\00\00\00" "\0c\00\00\00" "\50\00\00\00" "\10\00\00\00")
  (data (i32.const 64) "content-type")
  (data (i32.const 80) "application/json")
  (data (i32.const 96) "{\"message\": \"hello\"}")

  ;; Results of more than a value are written from 256 on: whether it is an error, then what it is.
  (func $checked (result i32)
    (if (i32.load8_u (i32.const 256)) (then unreachable))
    (i32.load (i32.const 260)))

  (func (export "wasi:http/incoming-handler@0.2.0#handle") (param $request i32) (param $out i32)
    (local $head i32) (local $content i32) (local $stream i32)
    (call $drop-request (local.get $request))
    (call $fields (i32.const 16) (i32.const 1) (i32.const 256))
    (local.set $head (call $response (call $checked)))
    (call $body (local.get $head) (i32.const 256))
    (local.set $content (call $checked))
    (call $answer (local.get $out) (i32.const 0) (local.get $head)
      (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
    (call $write (local.get $content) (i32.const 256))
    (local.set $stream (call $checked))
    (call $send (local.get $stream) (i32.const 96) (i32.const 20) (i32.const 256))
    (drop (call $checked))
    (call $close (local.get $stream))
    (call $finish (local.get $content) (i32.const 0) (i32.const 0) (i32.const 256))
    (drop (call $checked)))

  ;; No import here returns anything that must be allocated.
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable))
