//! `uncia-engine cpu sweep`: many settings, each under many quotas; durations or throttles out.
//!
//! Answers are an Arrow stream on standard output, and short: a search or a prediction asks for
//! hundreds of thousands of tasks, of which nothing but their durations matters. What is to be kept
//! as a measurement is a row of `invocations`: see `simulate`.
//!
//! Each setting is simulated under every quota with the same seed, so that quotas differ by nothing
//! else; what a pair gives does not depend on the others, nor on the number of processors.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use serde::Deserialize;
use uncia_bandwidth::Nanos;
use uncia_bandwidth::sim::{self, Seen, Setting};

use crate::config;
use crate::output::{self, BAD_INPUT, FAILED};

/// Runs and tasks that are simulated before their rows are written, and the fewest pairs.
const BLOCK: u64 = 1_000_000;
const FEWEST: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    #[serde(default)]
    seed: u64,
    settings: Vec<Setting>,
    /// Quotas instead of the settings' own, null for none.
    quotas_ns: Option<Vec<Option<Nanos>>>,
    of: Of,
}

/// What is told of each pair of setting and quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Of {
    /// A row a pair: the wall-clock times of its runs or tasks.
    Durations,
    /// A row a run of a thread: when its throttles began and when they ended.
    Throttles,
}

/// A setting's number, and the quota under which it is simulated.
type Pair = (usize, Option<Nanos>);
/// The lists of a row: of ns.
type Lists = Vec<Vec<i64>>;

pub(super) fn run(config: &Path) -> ExitCode {
    let asked = config::parse::<Configuration>(config)
        .and_then(|configuration| Ok((configuration.pairs()?, configuration)));
    let (pairs, configuration) = match asked {
        Ok(asked) => asked,
        Err(message) => return output::fail(&message, BAD_INPUT),
    };
    match configuration.write(&pairs, BufWriter::new(std::io::stdout().lock())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => output::fail(&message, FAILED),
    }
}

impl Configuration {
    /// Every setting under every quota; a sentence if one of them cannot be simulated.
    fn pairs(&self) -> Result<Vec<Pair>, String> {
        let mut pairs = Vec::new();
        for (index, setting) in self.settings.iter().enumerate() {
            let own = [setting.quota_ns];
            let mut setting = setting.clone();
            for &quota in self.quotas_ns.as_deref().unwrap_or(&own) {
                setting.quota_ns = quota;
                setting
                    .check()
                    .map_err(|error| format!("settings[{index}] ({}): {error}", setting.name))?;
                pairs.push((index, quota));
            }
        }
        Ok(pairs)
    }

    fn write(&self, pairs: &[Pair], out: impl Write) -> Result<(), String> {
        let sentence = |error| format!("cannot write what was simulated: {error}");
        let schema = self.of.schema();
        let mut stream = StreamWriter::try_new(out, &schema).map_err(sentence)?;
        let most = self.settings.iter().map(|setting| setting.runs).max().unwrap_or(1);
        let block = usize::try_from(BLOCK / most.max(1)).unwrap_or(FEWEST).max(FEWEST);
        for pairs in pairs.chunks(block) {
            let rows = self.simulated(pairs)?;
            stream
                .write(&self.of.batch(&schema, pairs, rows).map_err(sentence)?)
                .map_err(sentence)?;
        }
        stream.finish().map_err(sentence)
    }

    /// The rows of each pair, in their order, simulated on all processors.
    fn simulated(&self, pairs: &[Pair]) -> Result<Vec<Vec<Lists>>, String> {
        let mut rows: Vec<_> = pairs.iter().map(|_| Ok(Vec::new())).collect();
        let left = Mutex::new(pairs.iter().zip(&mut rows));
        let work = || {
            let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((&pair, row)) = next() {
                *row = self.one(pair);
            }
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 1..processors.min(pairs.len()) {
                scope.spawn(work);
            }
            work();
        });
        rows.into_iter().collect()
    }

    fn one(&self, (index, quota_ns): Pair) -> Result<Vec<Lists>, String> {
        let setting = Setting { quota_ns, ..self.settings[index].clone() };
        let seed = self.seed.wrapping_add(index as u64);
        let outcome = sim::simulate(&setting, seed).map_err(|error| error.to_string())?;
        Ok(self.of.rows(&outcome.seen))
    }
}

impl Of {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Durations => &["execution"],
            Self::Throttles => &["start", "end"],
        }
    }

    fn rows(self, seen: &[Seen]) -> Vec<Lists> {
        match self {
            Self::Durations => vec![vec![seen.iter().map(|one| one.end - one.start).collect()]],
            Self::Throttles => seen
                .iter()
                .map(|one| {
                    let (start, end) = one.gaps.iter().copied().unzip();
                    vec![start, end]
                })
                .collect(),
        }
    }

    /// `setting`, its number; `quota_ns`, null for none; and lists of ns.
    fn schema(self) -> SchemaRef {
        let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, false)));
        let mut fields = vec![
            Field::new("setting", DataType::UInt32, false),
            Field::new("quota_ns", DataType::Int64, true),
        ];
        fields.extend(self.names().iter().map(|&name| Field::new(name, list.clone(), false)));
        Arc::new(Schema::new(fields))
    }

    fn batch(
        self,
        schema: &SchemaRef,
        pairs: &[Pair],
        rows: Vec<Vec<Lists>>,
    ) -> Result<RecordBatch, ArrowError> {
        let (mut settings, mut quotas) = (Vec::new(), Vec::new());
        let mut lists: Vec<_> = self.names().iter().map(|_| list_builder()).collect();
        for (&(index, quota), rows) in pairs.iter().zip(rows) {
            for row in rows {
                settings.push(u32::try_from(index).unwrap_or(u32::MAX));
                quotas.push(quota.and_then(|quota| i64::try_from(quota).ok()));
                for (list, values) in lists.iter_mut().zip(row) {
                    list.values().append_slice(&values);
                    list.append(true);
                }
            }
        }
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(UInt32Array::from(settings)), Arc::new(Int64Array::from(quotas))];
        columns.extend(lists.iter_mut().map(|list| Arc::new(list.finish()) as ArrayRef));
        RecordBatch::try_new(Arc::clone(schema), columns)
    }
}

fn list_builder() -> ListBuilder<Int64Builder> {
    let item = Arc::new(Field::new("item", DataType::Int64, false));
    ListBuilder::new(Int64Builder::new()).with_field(item)
}
