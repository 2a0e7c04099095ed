//! Functions in Ruby.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use libtest_mimic::Trial;
use serde_json::json;
use uncia_worker::instance::{Outcome, Runtime, StartFrom};

use crate::errors::init_error;
use crate::fixture::{Function, Needs, answer, error, host, request, test, with_context};
use crate::pool::restored;

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("ruby_handlers_of_all_forms", Needs::Ruby, handlers),
        test("what_a_ruby_handler_knows", Needs::Ruby, context),
        test("ruby_handlers_that_cannot_be_loaded", Needs::Ruby, unloadable),
        test("ruby_errors_are_lambdas", Needs::Ruby, errors),
        test("ruby_that_exits", Needs::Ruby, exits),
        test("ruby_with_gems_of_its_own", Needs::Ruby, gems),
        test("ruby_that_was_started_ahead", Needs::Ruby, started_ahead),
    ]
}

fn ruby(code: &str) -> Function {
    Function::new("ruby", &[("main.rb", code)], "main.handler")
}

async fn handlers() {
    let method = "def handler(event:, context:) = { double: 2 * event, text: \"\u{fc}\" }\n";
    let class = "require 'double'
        module Functions
          class Handler
            def self.process(event:, context:) = { double: double(event), text: '\u{fc}' }
          end
        end";
    let double = "def double(value) = 2 * value\n";
    for (files, handler) in [
        (vec![("main.rb", method)], "main.handler"),
        (vec![("deep/main.rb", method)], "deep/main.handler"),
        (vec![("main.rb", class), ("double.rb", double)], "main.Functions::Handler.process"),
    ] {
        let function = Function::new("ruby", &files, handler);
        assert_eq!(function.once("21").await, json!({"double": 42, "text": "\u{fc}"}), "{handler}");
    }
    let large = format!("\"{}\"", "x".repeat(6 * 1024 * 1024 - 2));
    let function = ruby("def handler(event:, context:) = event\n");
    let instance = function.start().await;
    for event in [large.as_str(), "null", "[1, 2.5, \"\\u00e9\"]"] {
        let expected: serde_json::Value = serde_json::from_str(event).unwrap();
        assert!(answer(&instance.invoke(request(event)).await) == expected);
    }
    instance.stop(Duration::ZERO).await;
}

async fn context() {
    let code = "
        require 'etc'
        require 'net/http'
        def handler(event:, context:)
          left = context.get_remaining_time_in_millis
          puts 'printed'
          [context.function_name, context.memory_limit_in_mb, context.invoked_function_arn,
           left.positive? && left <= 60_000, context.client_context, Dir.pwd, Etc.getlogin || Etc.getpwuid.name,
           ENV['AWS_EXECUTION_ENV'].start_with?('AWS_Lambda_ruby'), __FILE__]
        end";
    let function = ruby(code);
    let instance = function.start().await;
    let client = STANDARD.encode(r#"{"custom":{"k":"\u00fc"}}"#);
    let reply = instance.invoke(with_context(client)).await;
    assert_eq!(
        answer(&reply),
        json!([
            "test", "256", "arn:aws:lambda:us-east-1:000000000000:function:test", true,
            {"custom": {"k": "\u{fc}"}}, "/var/task", "sbx_user1051", true, "/var/task/main.rb"
        ])
    );
    assert_eq!(String::from_utf8_lossy(&reply.log_tail), "printed\n");
    instance.stop(Duration::ZERO).await;
}

async fn unloadable() {
    let code = "VALUE = 1\n";
    for (text, handler, kind, words) in [
        (code, "main.absent", "Runtime.HandlerNotFound", "'absent' missing in 'main.rb'"),
        (code, "main.Absent.handler", "Init<NameError>", "uninitialized constant Absent"),
        (code, "other.handler", "Init<LoadError>", "there is no file other.rb"),
        ("require 'nothing-like-it'\n", "main.handler", "Init<LoadError>", "nothing-like-it"),
        ("def (\n", "main.handler", "Init<SyntaxError>", "main.rb:1"),
        ("raise ArgumentError, 'no'\n", "main.handler", "Init<ArgumentError>", "no"),
        (code, "main", "Runtime.MalformedHandlerName", "file.method"),
    ] {
        let function = Function::new("ruby", &[("main.rb", text)], handler);
        let (found, message) = init_error(&function).await;
        assert_eq!(found, kind, "{handler}: {message}");
        assert!(message.contains(words), "{handler}: {message}");
    }
}

async fn errors() {
    let code = "
        class Refused < StandardError; end
        def handler(event:, context:)
          case event
          when 'raises' then raise Refused, \"no \\u00fc\"
          when 'bytes' then raise Refused, \"\\xff\"
          when 'missing' then nothing_like_it
          when 'deep' then handler(event: event, context: context)
          # As a user's abstract method raises it. No StandardError, so that a bare `rescue` lets it pass: the
          # runtime must answer it, too.
          when 'wants' then raise NotImplementedError
          when 'nan' then Float::NAN
          else 'fine'
          end
        end";
    let function = ruby(code);
    let instance = function.start().await;
    for (event, kind, message) in [
        ("raises", "Function<Refused>", "no \u{fc}"),
        ("bytes", "Function<Refused>", "?"),
        ("missing", "Function<NameError>", "nothing_like_it"),
        ("deep", "Function<SystemStackError>", "stack level too deep"),
        ("wants", "Function<NotImplementedError>", "NotImplementedError"),
        ("nan", "Runtime.MarshalError", "NaN"),
    ] {
        let object = error(&instance.invoke(request(&format!("\"{event}\""))).await);
        assert_eq!(object["errorType"], kind, "{object}");
        assert!(object["errorMessage"].as_str().unwrap().contains(message), "{object}");
        assert!(object["stackTrace"].is_array(), "{object}");
    }
    assert_eq!(answer(&instance.invoke(request("1")).await), "fine");
    instance.stop(Duration::ZERO).await;
}

async fn exits() {
    let code = "def handler(event:, context:) = exit(event)\n";
    let function = ruby(code);
    let instance = function.start().await;
    let reply = instance.invoke(request("3")).await;
    assert_eq!(reply.outcome, Outcome::Exited("exit status 3".into()));
}

async fn gems() {
    let spec = "Gem::Specification.new do |it|
          it.name = 'greeting'
          it.version = '1.0'
          it.summary = 'Greets.'
          it.authors = ['nobody']
          it.files = ['lib/greeting.rb']
        end";
    let code = "require 'greeting'\ndef handler(event:, context:) = [defined?(Gem), GREETING]\n";
    let version = host().runtime_version(Runtime::named("ruby").unwrap()).unwrap();
    let minor = version.rsplit_once('.').unwrap().0;
    let place = format!("vendor/bundle/ruby/{minor}.0");
    let (spec_file, source) = (
        format!("{place}/specifications/greeting-1.0.gemspec"),
        format!("{place}/gems/greeting-1.0/lib/greeting.rb"),
    );
    let files = [("main.rb", code), (&*spec_file, spec), (&*source, "GREETING = 'hello'\n")];
    let function = Function::new("ruby", &files, "main.handler");
    assert_eq!(function.once("{}").await, json!(["constant", "hello"]));
    let plain = ruby("def handler(event:, context:) = [defined?(Gem)]\n");
    assert_eq!(plain.once("{}").await, json!([null]));
}

async fn started_ahead() {
    let code = "
        def handler(event:, context:)
          [ENV['SECRET'], ENV['AWS_LAMBDA_FUNCTION_NAME'], ENV.key?('_UNCIA_WAITS_AT'), Dir.children('.'),
           Dir.pwd, Time.at(0).utc_offset, Dir.children('/tmp')]
        end";
    let function = ruby(code).with(|spec| {
        spec.start_from = StartFrom::Pool;
        spec.environment.insert("SECRET".into(), "secret".into());
        spec.environment.insert("TZ".into(), "EST5".into());
    });
    let expected = json!(["secret", "test", false, ["main.rb"], "/var/task", -5 * 3600, []]);
    for _ in 0..2 {
        let instance = restored(&function).await;
        assert_eq!(answer(&instance.invoke(request("{}")).await), expected);
        instance.stop(Duration::ZERO).await;
    }
    // What an interpreter reads when it starts, one that has started has missed.
    let obeyed = function.with(|spec| {
        spec.environment.insert("RUBYOPT".into(), "-W0".into());
    });
    let started = obeyed.try_start().await;
    assert!(!started.restored);
    started.result.unwrap().stop(Duration::ZERO).await;
}
