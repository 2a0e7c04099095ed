//! What happens to a state between two events.

use std::sync::Arc;

use serde_json::{Value, json};

use super::branch::{Branch, Pending};
use super::history::{self, History};
use super::stored::Stored;
use super::{Decision, Execution, Purpose, Status, TaskId, Turn, caught, data, nanoseconds};
use crate::choice::timestamp;
use crate::definition::{Amount, Kind, Machine, State, StateMachine, Target, Text, Until};
use crate::error::{Failure, names};
use crate::path::short;
use crate::retry;

/// What is to be done with a branch.
#[derive(Debug)]
pub(super) enum Step {
    /// Its state is entered.
    Enter { branch: u64 },
    /// Its state is carried out, for the first time or again.
    Run { branch: u64 },
    /// The function of its task has answered.
    Answer { branch: u64, result: Arc<Value> },
    /// Its state has a result.
    Finish { branch: u64, result: Arc<Value> },
    /// Its state has failed.
    Fail { branch: u64, failure: Failure, is_branch: bool },
    /// It goes on at another state, with this input, or ends if there is none.
    Leave { branch: u64, next: Option<usize>, output: Value },
}

/// What a state comes to.
enum Outcome {
    /// It waits for something.
    Waits,
    /// It has a result.
    Result(Value),
    /// It leads to this state, with its input.
    Goes(usize),
    /// It ends its branch.
    Ends,
}

pub(super) fn machine_of(
    machine: &StateMachine,
    branch: &Branch,
) -> (Arc<[Machine]>, usize, usize) {
    (machine.machines.clone(), branch.machine, branch.state)
}

impl Execution {
    pub(super) fn step(&mut self, turn: &mut Turn<'_>, step: Step) {
        match step {
            Step::Enter { branch } => self.enter(turn, branch),
            Step::Run { branch } => {
                if let Err(failure) = self.run(turn, branch) {
                    turn.steps.push_back(Step::Fail { branch, failure, is_branch: false });
                }
            }
            Step::Answer { branch, result } => self.answer(turn, branch, result),
            Step::Finish { branch, result } => {
                if let Err(failure) = self.finish(turn, branch, result) {
                    turn.steps.push_back(Step::Fail { branch, failure, is_branch: false });
                }
            }
            Step::Fail { branch, failure, is_branch } => {
                self.fail(turn, branch, failure, is_branch);
            }
            Step::Leave { branch, next, output } => self.leave(turn, branch, next, output),
        }
    }

    fn enter(&mut self, turn: &mut Turn<'_>, name: u64) {
        let Some(branch) = self.branches.get_mut(&name) else { return };
        let (machines, machine, state) = machine_of(&self.machine, branch);
        let state = &machines[machine].states[state];
        branch.entered = turn.now;
        branch.retries = vec![0; state.retry.len()];
        let raw = Arc::new(branch.raw.value());
        let (entered, _) = history::kinds(state.kind.name());
        self.record_of(turn, name, History::new(entered).state(&state.name).data(&raw));
        turn.steps.push_back(Step::Run { branch: name });
    }

    fn run(&mut self, turn: &mut Turn<'_>, name: u64) -> Result<(), Failure> {
        let Some(branch) = self.branches.get(&name) else { return Ok(()) };
        let (machines, machine, position) = machine_of(&self.machine, branch);
        let state = &machines[machine].states[position];
        let raw = branch.raw.value();
        let context = self.context(state, branch);
        if let Kind::Fail { error, cause } = &state.kind {
            let error = find_text(error, "Error", &raw, &context)?;
            let cause = find_text(cause, "Cause", &raw, &context)?;
            turn.steps.push_back(Step::Fail {
                branch: name,
                failure: Failure { error, cause },
                is_branch: false,
            });
            return Ok(());
        }
        let input = data::select(state.input.as_ref(), "InputPath", &raw, &context)?;
        let effective = match &state.parameters {
            None => input,
            Some(template) => template.fill(&input, &context, self.settings.data_limit)?,
        };
        let outcome = match &state.kind {
            Kind::Task { target, timeout } => {
                self.invoke(turn, name, state, target, timeout, &raw, effective, &context)?;
                Outcome::Waits
            }
            Kind::Pass { result } => Outcome::Result(result.clone().unwrap_or(effective)),
            Kind::Choice { rules, default } => {
                Outcome::Goes(choose(rules, *default, &effective, &context)?)
            }
            Kind::Wait(until) => {
                let at = self.moment(turn, until, &effective, &context)?;
                if at > turn.now {
                    let timer = self.set_timer(turn, at, Purpose::Wait(name));
                    self.wait_for(name, Pending::Timer(timer));
                    Outcome::Waits
                } else {
                    Outcome::Result(effective)
                }
            }
            Kind::Succeed => Outcome::Ends,
            Kind::Fail { .. } => unreachable!("it has failed above"),
            Kind::Parallel { branches } => {
                self.check_size(&effective, "the input of the branches")?;
                self.fork(turn, name, branches, &effective);
                Outcome::Waits
            }
            Kind::Map { items, concurrency, .. } => {
                let found = data::select(Some(items), "ItemsPath", &effective, &context)?;
                let Value::Array(values) = found else {
                    let cause =
                        format!("ItemsPath {} finds no list: {}", items.text(), short(&found));
                    return Err(Failure::runtime(cause));
                };
                let limit = find_amount(concurrency, "MaxConcurrency", &effective, &context)?;
                let limit = limit.filter(|limit| *limit > 0).unwrap_or(u64::MAX);
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let limit = limit.min(self.settings.map_concurrency.max(1));
                if values.is_empty() {
                    self.record_of(turn, name, History::new("MapStateStarted").index(0));
                    self.record_of(turn, name, History::new("MapStateSucceeded"));
                    Outcome::Result(json!([]))
                } else {
                    self.check_size(&effective, "the map's input")?;
                    self.iterate(turn, name, values, limit, effective)?;
                    Outcome::Waits
                }
            }
        };
        match outcome {
            Outcome::Waits => {}
            Outcome::Result(result) => {
                turn.steps.push_back(Step::Finish { branch: name, result: Arc::new(result) });
            }
            Outcome::Goes(next) => {
                let input = data::select(state.input.as_ref(), "InputPath", &raw, &context)?;
                let output = data::select(state.output.as_ref(), "OutputPath", &input, &context)?;
                self.check_size(&output, "the state's output")?;
                turn.steps.push_back(Step::Leave { branch: name, next: Some(next), output });
            }
            Outcome::Ends => {
                let input = data::select(state.input.as_ref(), "InputPath", &raw, &context)?;
                let output = data::select(state.output.as_ref(), "OutputPath", &input, &context)?;
                self.check_size(&output, "the state's output")?;
                turn.steps.push_back(Step::Leave { branch: name, next: None, output });
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "all that a task's definition and input say")]
    fn invoke(
        &mut self,
        turn: &mut Turn<'_>,
        name: u64,
        state: &State,
        target: &Target,
        timeout: &Amount,
        raw: &Value,
        mut payload: Value,
        context: &Value,
    ) -> Result<(), Failure> {
        let timeout = find_amount(timeout, "TimeoutSeconds", raw, context)?;
        let function = match target {
            Target::Function(function) => function.clone(),
            Target::Parameters => {
                let function = payload["FunctionName"].as_str().map(str::to_owned);
                let function = function
                    .ok_or_else(|| Failure::runtime("the parameter FunctionName is no text"))?;
                payload = payload.get_mut("Payload").map_or_else(|| json!({}), Value::take);
                function
            }
        };
        self.check_size(&payload, "the function's payload")?;
        let task = TaskId(self.name());
        self.tasks.insert(task, name);
        let shared = Arc::new(payload);
        let scheduled = History::new("LambdaFunctionScheduled").function(&function).data(&shared);
        self.record_of(turn, name, scheduled);
        let payload = Arc::unwrap_or_clone(shared);
        let state = state.name.clone();
        turn.out.push(Decision::Invoke { task, function, payload, state });
        let timer = timeout.map(|seconds| {
            let at = turn.now + nanoseconds(seconds);
            self.set_timer(turn, at, Purpose::Timeout(name))
        });
        self.wait_for(name, Pending::Task { task, timer });
        Ok(())
    }

    fn answer(&mut self, turn: &mut Turn<'_>, name: u64, result: Arc<Value>) {
        let Some(branch) = self.branches.get(&name) else { return };
        let (machines, machine, position) = machine_of(&self.machine, branch);
        let result = match &machines[machine].states[position].kind {
            Kind::Task { target: Target::Parameters, .. } => Arc::new(json!({
                "ExecutedVersion": "$LATEST",
                "Payload": Arc::unwrap_or_clone(result),
                "StatusCode": 200,
            })),
            _ => result,
        };
        turn.steps.push_back(Step::Finish { branch: name, result });
    }

    /// Makes the state's output from its result, and leaves it.
    fn finish(
        &mut self,
        turn: &mut Turn<'_>,
        name: u64,
        result: Arc<Value>,
    ) -> Result<(), Failure> {
        let Some(branch) = self.branches.get(&name) else { return Ok(()) };
        let (machines, machine, position) = machine_of(&self.machine, branch);
        let state = &machines[machine].states[position];
        let (raw, context) = (branch.raw.value(), self.context(state, branch));
        let output = if matches!(state.kind, Kind::Wait(_)) {
            data::select(state.input.as_ref(), "InputPath", &raw, &context)?
        } else {
            let result = match &state.result_selector {
                None => Arc::unwrap_or_clone(result),
                Some(template) => template.fill(&result, &context, self.settings.data_limit)?,
            };
            data::combine(state.result.as_ref(), &raw, result)?
        };
        let output = data::select(state.output.as_ref(), "OutputPath", &output, &context)?;
        self.check_size(&output, "the state's output")?;
        turn.steps.push_back(Step::Leave { branch: name, next: state.next, output });
        Ok(())
    }

    fn leave(&mut self, turn: &mut Turn<'_>, name: u64, next: Option<usize>, output: Value) {
        let stored = self.stored(&output);
        let Some(branch) = self.branches.get_mut(&name) else { return };
        let (machines, machine, position) = machine_of(&self.machine, branch);
        let state = &machines[machine].states[position];
        let output = Arc::new(output);
        branch.raw = stored.clone();
        branch.pending = Pending::Nothing;
        let parent = branch.parent;
        let (_, exited) = history::kinds(state.kind.name());
        self.record_of(turn, name, History::new(exited).state(&state.name).data(&output));
        if let (Some(next), Some(branch)) = (next, self.branches.get_mut(&name)) {
            branch.state = next;
            turn.steps.push_back(Step::Enter { branch: name });
            return;
        }
        match parent {
            None => self.end(turn, Status::Succeeded(output)),
            Some((parent, position)) => {
                self.branches.remove(&name);
                self.child_ended(turn, parent, position, name, stored);
            }
        }
    }

    /// Tries a state again, goes where its catchers lead, or ends its branch.
    fn fail(&mut self, turn: &mut Turn<'_>, name: u64, failure: Failure, is_branch: bool) {
        let Some(branch) = self.branches.get_mut(&name) else { return };
        branch.pending = Pending::Nothing;
        let (machines, machine, position) = machine_of(&self.machine, branch);
        let state = &machines[machine].states[position];
        let failed = match state.kind {
            Kind::Parallel { .. } => Some("ParallelStateFailed"),
            Kind::Map { .. } => Some("MapStateFailed"),
            _ => None,
        };
        if let Some(kind) = failed {
            self.record_of(turn, name, History::new(kind).failure(&failure));
        }
        let Some(branch) = self.branches.get_mut(&name) else { return };
        let matching = |errors: &[String]| retry::matches(errors, &failure.error, is_branch);
        // Only the first that names the error counts; once it has no more tries, catchers do.
        if let Some(index) = state.retry.iter().position(|retrier| matching(&retrier.errors)) {
            let (retrier, retries) = (&state.retry[index], branch.retries[index]);
            if retries < retrier.max_attempts {
                branch.retries[index] += 1;
                let at = turn.now + retrier.delay(retries);
                if at > turn.now {
                    let timer = self.set_timer(turn, at, Purpose::Retry(name));
                    self.wait_for(name, Pending::Timer(timer));
                } else {
                    turn.steps.push_back(Step::Run { branch: name });
                }
                return;
            }
        }
        if let Some(catcher) = state.catch.iter().find(|catcher| matching(&catcher.errors)) {
            let raw = branch.raw.value();
            let output = data::combine(catcher.result_path.as_ref(), &raw, caught(&failure))
                .and_then(|output| self.check_size(&output, "the state's output").map(|()| output));
            match output {
                Ok(output) => {
                    turn.steps.push_back(Step::Leave {
                        branch: name,
                        next: Some(catcher.next),
                        output,
                    });
                }
                Err(failure) => self.fail_branch(turn, name, failure),
            }
            return;
        }
        self.fail_branch(turn, name, failure);
    }

    pub(super) fn wait_for(&mut self, name: u64, pending: Pending) {
        if let Some(branch) = self.branches.get_mut(&name) {
            branch.pending = pending;
        }
    }

    /// When a wait state's time is over.
    fn moment(
        &self,
        turn: &Turn<'_>,
        until: &Until,
        input: &Value,
        context: &Value,
    ) -> Result<crate::Nanos, Failure> {
        match until {
            Until::Seconds(seconds) => Ok(turn.now + nanoseconds(*seconds)),
            Until::Timestamp(at) => Ok(*at),
            Until::SecondsPath(path) => {
                let value = data::select(Some(path), "SecondsPath", input, context)?;
                let seconds = value.as_u64().ok_or_else(|| {
                    Failure::runtime(format!(
                        "SecondsPath {} finds {}, which is no whole number from 0",
                        path.text(),
                        short(&value)
                    ))
                })?;
                Ok(turn.now + nanoseconds(seconds))
            }
            Until::TimestampPath(path) => {
                let value = data::select(Some(path), "TimestampPath", input, context)?;
                let at = timestamp(&value).ok_or_else(|| {
                    Failure::runtime(format!(
                        "TimestampPath {} finds {}, which is no time",
                        path.text(),
                        short(&value)
                    ))
                })?;
                Ok(at.as_nanosecond())
            }
        }
    }

    /// The context object, made only for states that read it.
    pub(super) fn context(&self, state: &State, branch: &Branch) -> Value {
        if !state.uses_context {
            return Value::Null;
        }
        let settings = &self.settings;
        let mut context = json!({
            "Execution": {
                "Id": settings.id,
                "Input": self.input.as_ref().map(Stored::value),
                "Name": settings.name,
                "StartTime": data::text(self.started),
            },
            "State": {
                "EnteredTime": data::text(branch.entered),
                "Name": state.name,
                "RetryCount": branch.retries.iter().sum::<u64>(),
            },
            "StateMachine": { "Id": settings.machine_id, "Name": settings.machine_name },
        });
        if let Some(item) = &branch.item {
            context["Map"] = json!({ "Item": { "Index": item.0, "Value": item.1.value() } });
        }
        context
    }
}

fn choose(
    rules: &[(crate::choice::Rule, usize)],
    default: Option<usize>,
    input: &Value,
    context: &Value,
) -> Result<usize, Failure> {
    for (rule, next) in rules {
        if rule.holds(input, context).map_err(Failure::runtime)? {
            return Ok(*next);
        }
    }
    default.ok_or_else(|| Failure::new(names::NO_CHOICE, "no rule holds, and there is no Default"))
}

fn find_amount(
    amount: &Amount,
    what: &str,
    input: &Value,
    context: &Value,
) -> Result<Option<u64>, Failure> {
    let path = match amount {
        Amount::None => return Ok(None),
        Amount::Number(number) => return Ok(Some(*number)),
        Amount::Path(path) => path,
    };
    let value = data::select(Some(path), what, input, context)?;
    let number = value.as_u64().ok_or_else(|| {
        Failure::runtime(format!(
            "{what} {} finds {}, which is no whole number",
            path.text(),
            short(&value)
        ))
    })?;
    Ok(Some(number))
}

fn find_text(text: &Text, what: &str, input: &Value, context: &Value) -> Result<String, Failure> {
    match text {
        Text::None => Ok(String::new()),
        Text::Literal(text) => Ok(text.clone()),
        Text::Path(path) => match data::select(Some(path), what, input, context)? {
            Value::String(text) => Ok(text),
            other => Err(Failure::runtime(format!(
                "{what} {} finds no text: {}",
                path.text(),
                short(&other)
            ))),
        },
    }
}
