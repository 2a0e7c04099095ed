//! Errors that resist being reported: with methods that fail, names that no header has room for, texts
//! that are no UTF-8, and modules of the package in place of the language's own.

use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::json;
use uncia_worker::instance::StartError;

use crate::errors::init_error;
use crate::fixture::{Function, Needs, answer, error, request, test};
use crate::java::java_of;

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("odd_errors_of_python", Needs::Sandbox, python),
        test("python_beside_modules_of_the_names_of_its_own", Needs::Sandbox, python_names),
        test("odd_errors_of_node", Needs::Node, node),
        test("odd_errors_of_ruby", Needs::Ruby, ruby),
        test("odd_errors_of_java", Needs::Java, java),
    ]
}

/// Invokes an instance with each event, which ends in an error of this type and message; then once more,
/// since none of them is its end.
async fn all_reported(function: Function, expected: &[(&str, &str, &str)]) {
    let instance = function.start().await;
    for (event, kind, message) in expected {
        let object = error(&instance.invoke(request(&json!(event).to_string())).await);
        let name = object["errorType"].as_str().unwrap_or("");
        assert!(name.starts_with(kind), "{event}: {}", &name[..name.len().min(200)]);
        let text = object["errorMessage"].as_str().unwrap_or("");
        assert!(text.contains(message), "{event}: {text}");
    }
    assert_eq!(answer(&instance.invoke(request("1")).await), "fine");
    instance.stop(Duration::ZERO).await;
}

async fn python() {
    let function = Function::python(
        "
        import sys
        class Silent(Exception):
            def __str__(self):
                raise ValueError('no word')
        def handler(event, context):
            if event == 'long':
                raise type('N' * 100000, (Exception,), {})('long')
            if event == 'odd':
                raise type('a\\r\\nb\\x01\\u00fc', (Exception,), {})('odd')
            if event == 'silent':
                raise Silent
            if event == 'closed':
                sys.stdout.close()
                raise KeyError('closed')
            return 'fine'
        ",
    );
    let expected = [
        ("long", "NNNN", "long"),
        ("odd", "a\r\nb\u{1}\u{fc}", "odd"),
        ("silent", "Silent", ""),
        ("closed", "KeyError", "closed"),
    ];
    all_reported(function, &expected).await;
    // Half of a pair of surrogates in a message is no reason to lose the rest of it.
    let function = Function::python("import os\nraise OSError(os.fsdecode(b'no \\xff'))\n");
    match function.try_start().await.result {
        Err(StartError::Init { error_type, message, .. }) => {
            assert_eq!((error_type.as_str(), message.as_str()), ("OSError", "no \u{fffd}"));
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    }
}

async fn python_names() {
    let code = "import logging, json
def handler(event, context):
    if event == 'fails':
        raise KeyError('fails')
    return 'fine'
";
    let names = ["json", "logging", "token", "tokenize", "linecache", "traceback", "re", "types"];
    let paths: Vec<String> = names.iter().map(|name| format!("{name}.py")).collect();
    let mut files = vec![("main.py", code)];
    files.extend(paths.iter().map(|path| (path.as_str(), "own = True\n")));
    let function = Function::new("python", &files, "main.handler");
    let instance = function.start().await;
    let object = error(&instance.invoke(request("\"fails\"")).await);
    assert_eq!(object["errorType"], "KeyError", "{object}");
    let trace = object["stackTrace"][0].as_str().unwrap();
    assert!(trace.contains("/var/task/main.py\", line 4, in handler"), "{trace}");
    // Blanks around an event, as a file has them, are no reason to look for a module.
    assert_eq!(answer(&instance.invoke(request(" {\"a\": 1}\r\n")).await), "fine");
    instance.stop(Duration::ZERO).await;
}

async fn node() {
    let code = "
        exports.handler = async (event) => {
          const named = (name) => Object.assign(new Error(event), { name });
          if (event === 'long') throw named('N'.repeat(100000));
          if (event === 'odd') throw named('a\\r\\nb\\u00fc');
          if (event === 'nothing') throw undefined;
          if (event === 'bare') throw Object.create(null);
          if (event === 'mute') throw new Proxy(new Error(), { get() { throw new Error('mute'); } });
          if (event === 'json') return { toJSON() { throw Symbol('json'); } };
          if (event === 'console') { console.error = () => { throw new Error('no output'); }; throw new RangeError('console'); }
          return 'fine';
        };";
    let function = Function::new("node", &[("index.js", code)], "index.handler");
    let expected = [
        ("long", "NNNN", "long"),
        ("odd", "a\r\nb\u{fc}", "odd"),
        ("nothing", "undefined", "undefined"),
        ("bare", "handled", "could not be described"),
        ("mute", "handled", "could not be described"),
        ("json", "Runtime.MarshalError", ""),
        ("console", "RangeError", "console"),
    ];
    all_reported(function, &expected).await;
}

async fn ruby() {
    let code = "
        class Fatal < Exception; end
        class Silent < StandardError
          def message = raise('no word')
        end
        class Numbered < StandardError
          def message = 5
          def backtrace = [1, nil]
        end
        class Named < StandardError
          def self.to_s = \"N\" * 100_000
        end
        class Odd < StandardError
          def self.to_s = \"a\\r\\nb\"
        end
        def handler(event:, context:)
          case event
          when 'fatal' then raise Fatal, 'fatal'
          when 'silent' then raise Silent
          when 'numbered' then raise Numbered
          when 'named' then raise Named, 'named'
          when 'odd' then raise Odd, 'odd'
          when 'wide' then raise ArgumentError, 'w\u{fc}'.encode('UTF-16LE')
          when 'thrown' then throw :nowhere
          when 'json' then Class.new { def to_json(*) = raise(Fatal, 'json') }.new
          else 'fine'
          end
        end";
    let function = Function::new("ruby", &[("main.rb", code)], "main.handler");
    let expected = [
        ("fatal", "Function<Fatal>", "fatal"),
        ("silent", "Function<Silent>", ""),
        ("numbered", "Function<Numbered>", "5"),
        ("named", "Function<NNNN", "named"),
        ("odd", "Function<a\r\nb>", "odd"),
        ("wide", "Function<ArgumentError>", "w\u{fc}"),
        ("thrown", "Function<UncaughtThrowError>", "nowhere"),
        ("json", "Runtime.MarshalError", "json"),
    ];
    all_reported(function, &expected).await;
    let function =
        Function::new("ruby", &[("main.rb", "raise Exception, 'at once'\n")], "main.handler");
    let (kind, message) = init_error(&function).await;
    assert_eq!((kind.as_str(), message.as_str()), ("Init<Exception>", "at once"));
}

async fn java() {
    let source = r#"
package mine;

import java.io.*;

public class Odd {
    static class Untraced extends RuntimeException {
        public StackTraceElement[] getStackTrace() { return null; }
    }
    static class Caused extends RuntimeException {
        public Throwable getCause() { throw new IllegalStateException(); }
        public void printStackTrace() { throw new IllegalStateException(); }
    }
    static class Failing extends PrintStream {
        Failing() { super(OutputStream.nullOutputStream()); }
        public void flush() { throw new IllegalStateException(); }
    }
    public String handle(String event) {
        PrintStream out = System.out;
        switch (event) {
            case "untraced": throw new Untraced();
            case "caused": throw new Caused();
            case "flush": System.setOut(new Failing()); throw new IllegalStateException("flush");
            case "none": System.setOut(null); throw new IllegalStateException("none");
            default: return "fine";
        }
    }
}
"#;
    let expected = [
        ("untraced", "mine.Odd$Untraced", ""),
        ("caused", "mine.Odd$Caused", ""),
        ("flush", "java.lang.IllegalStateException", "flush"),
        ("none", "java.lang.IllegalStateException", "none"),
    ];
    let function = java_of("Odd", source, "mine.Odd::handle");
    let instance = function.start().await;
    for (event, kind, message) in expected {
        let object = error(&instance.invoke(request(&json!(event).to_string())).await);
        assert_eq!(object["errorType"], kind, "{object}");
        assert!(object["errorMessage"].as_str().unwrap_or("").contains(message), "{object}");
    }
    assert_eq!(answer(&instance.invoke(request("\"1\"")).await), "fine");
    instance.stop(Duration::ZERO).await;
}
