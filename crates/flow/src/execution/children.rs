//! Branches within a state: those of a parallel state, and the items of a map state.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use super::branch::{Branch, Children, Pending};
use super::history::History;
use super::steps::{Step, machine_of};
use super::stored::Stored;
use super::{Execution, Status, Turn};
use crate::definition::Kind;
use crate::error::{Failure, names};

impl Execution {
    /// Begins the branches of a parallel state.
    pub(super) fn fork(
        &mut self,
        turn: &mut Turn<'_>,
        name: u64,
        branches: &[usize],
        input: &Value,
    ) {
        self.record_of(turn, name, History::new("ParallelStateStarted"));
        let input = &self.stored(input);
        let running = branches.iter().enumerate();
        let running = running
            .map(|(position, machine)| {
                self.begin_child(turn, name, position, *machine, input, None)
            })
            .collect();
        let children = Children { running, ..Children::new(branches.len()) };
        self.wait_for(name, Pending::Children(children));
    }

    /// Begins the first items of a map state.
    pub(super) fn iterate(
        &mut self,
        turn: &mut Turn<'_>,
        name: u64,
        values: Vec<Value>,
        limit: usize,
        effective: Value,
    ) -> Result<(), Failure> {
        self.record_of(turn, name, History::new("MapStateStarted").index(values.len()));
        let children = Children::new(values.len());
        let mut waiting: VecDeque<_> =
            values.iter().map(|value| self.stored(value)).enumerate().collect();
        let first: Vec<_> = waiting.drain(..limit.min(waiting.len())).collect();
        let effective = Some(self.stored(&effective));
        let children = Children { waiting, effective, ..children };
        self.wait_for(name, Pending::Children(children));
        for (index, value) in first {
            if let Err(failure) = self.begin_item(turn, name, index, value) {
                self.remove_children(turn, name);
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Begins an item of a map state. What its states get is made only now: of all items that can be
    /// any number of times the state's input.
    fn begin_item(
        &mut self,
        turn: &mut Turn<'_>,
        name: u64,
        index: usize,
        value: Stored,
    ) -> Result<(), Failure> {
        let Some(branch) = self.branches.get(&name) else { return Ok(()) };
        let (machines, machine, position) = machine_of(&self.machine, branch);
        let state = &machines[machine].states[position];
        let (Kind::Map { selector, processor, .. }, Pending::Children(children)) =
            (&state.kind, &branch.pending)
        else {
            return Ok(());
        };
        let input = match selector {
            None => value.value(),
            Some(selector) => {
                let mut context = self.context(state, branch);
                if state.uses_context {
                    context["Map"] = json!({ "Item": { "Index": index, "Value": value.value() } });
                }
                let effective = children.effective.as_ref().map(Stored::value);
                selector.fill(&effective.unwrap_or_default(), &context, self.settings.data_limit)?
            }
        };
        self.check_size(&input, "the item's input")?;
        self.record_of(turn, name, History::new("MapIterationStarted").index(index));
        let input = self.stored(&input);
        let child = self.begin_child(turn, name, index, *processor, &input, Some((index, value)));
        if let Some(Pending::Children(children)) =
            self.branches.get_mut(&name).map(|it| &mut it.pending)
        {
            children.running.push(child);
        }
        Ok(())
    }

    fn begin_child(
        &mut self,
        turn: &mut Turn<'_>,
        name: u64,
        position: usize,
        machine: usize,
        input: &Stored,
        item: Option<(usize, Stored)>,
    ) -> u64 {
        let parent = self.branches.get(&name);
        let previous = parent.map_or(0, |parent| parent.previous);
        // What is within an item is about that item, unless it is about one of its own.
        let item = item.or_else(|| parent.and_then(|parent| parent.item.clone()));
        let start = self.machine.machines[machine].start;
        let child = Branch::new(machine, start, input.clone(), Some((name, position)), previous);
        self.add_branch(turn, Branch { item, ..child })
    }

    pub(super) fn child_ended(
        &mut self,
        turn: &mut Turn<'_>,
        parent: u64,
        position: usize,
        child: u64,
        output: Stored,
    ) {
        let Some(branch) = self.branches.get_mut(&parent) else { return };
        let is_map =
            self.machine.machines[branch.machine].states[branch.state].kind.name() == "Map";
        let Pending::Children(children) = &mut branch.pending else { return };
        children.running.retain(|running| *running != child);
        // With what separates it from the next, or ends the list.
        children.bytes += output.len() + 1;
        children.results[position] = Some(output);
        let (bytes, next) = (children.bytes + 1, children.waiting.pop_front());
        let is_done = next.is_none() && children.running.is_empty();
        if is_map {
            self.record_of(turn, parent, History::new("MapIterationSucceeded").index(position));
        }
        // At once, since all that is not wanted would have to be kept.
        let begun = self.check_bytes(bytes, "the results of the branches").and_then(|()| {
            next.map_or(Ok(()), |(index, value)| self.begin_item(turn, parent, index, value))
        });
        if let Err(failure) = begun {
            self.remove_children(turn, parent);
            turn.steps.push_back(Step::Fail { branch: parent, failure, is_branch: false });
            return;
        }
        if !is_done {
            return;
        }
        let Some(branch) = self.branches.get_mut(&parent) else { return };
        let Pending::Children(children) = std::mem::replace(&mut branch.pending, Pending::Nothing)
        else {
            return;
        };
        let results = children.results.iter();
        let results = results.map(|it| it.as_ref().map(Stored::value).unwrap_or_default());
        let results = results.collect();
        let kind = if is_map { "MapStateSucceeded" } else { "ParallelStateSucceeded" };
        self.record_of(turn, parent, History::new(kind));
        let result = Arc::new(Value::Array(results));
        turn.steps.push_back(Step::Finish { branch: parent, result });
    }

    /// Ends a branch, and with it the state that waits for it.
    pub(super) fn fail_branch(&mut self, turn: &mut Turn<'_>, name: u64, failure: Failure) {
        let parent = self.branches.get(&name).and_then(|branch| branch.parent);
        let Some((parent, position)) = parent else {
            self.end(turn, Status::Failed(failure));
            return;
        };
        let is_map = self.branches.get(&parent).is_some_and(|branch| {
            self.machine.machines[branch.machine].states[branch.state].kind.name() == "Map"
        });
        self.remove_branch(turn, name);
        self.remove_children(turn, parent);
        if is_map {
            let event = History::new("MapIterationFailed").index(position).failure(&failure);
            self.record_of(turn, parent, event);
        }
        let failure = if failure.error.is_empty() {
            Failure { error: names::BRANCH_FAILED.to_owned(), ..failure }
        } else {
            failure
        };
        turn.steps.push_back(Step::Fail { branch: parent, failure, is_branch: true });
    }

    /// Removes the branches that a state waits for.
    pub(super) fn remove_children(&mut self, turn: &mut Turn<'_>, parent: u64) {
        let branch = self.branches.get_mut(&parent);
        let pending = branch.map(|it| std::mem::replace(&mut it.pending, Pending::Nothing));
        let Some(Pending::Children(children)) = pending else { return };
        for child in children.running {
            self.remove_branch(turn, child);
        }
    }
}
