//! What is written is what is read, whole or cut off anywhere.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch, StringArray};
use proptest::prelude::*;
use uncia_record::{
    EPOCH_KEY, Epoch, Instance, Invocation, RecordError, StreamWriter, Table, read_stream,
};

fn invocation(number: i64) -> Invocation {
    Invocation {
        function: Arc::from(if number % 2 == 0 { "even" } else { "odd" }),
        invocation: format!("i{number}"),
        attempt: 1,
        outcome: Arc::from("ok"),
        scheduled: Some(number),
        ..Invocation::default()
    }
}

fn write(path: &Path, rows: &[Invocation]) {
    let mut writer = StreamWriter::create(path, Epoch::from_unix_ns(7)).unwrap();
    for row in rows {
        writer.push(row).unwrap();
    }
    assert_eq!(writer.close().unwrap(), rows.len() as u64);
}

fn read(path: &Path) -> (Vec<RecordBatch>, bool) {
    let mut batches = Vec::new();
    let (schema, whole) = read_stream(path, |batch| {
        batches.push(batch);
        Ok(())
    })
    .unwrap();
    assert_eq!(schema.metadata()[EPOCH_KEY], "7");
    (batches, whole)
}

fn scheduled(batches: &[RecordBatch]) -> Vec<Option<i64>> {
    batches
        .iter()
        .flat_map(|batch| {
            let column = batch.column_by_name("scheduled").unwrap();
            column.as_primitive::<Int64Type>().iter().collect::<Vec<_>>()
        })
        .collect()
}

fn functions(batches: &[RecordBatch]) -> Vec<String> {
    batches
        .iter()
        .flat_map(|batch| {
            let column = batch.column_by_name("function").unwrap();
            let text = column.as_dictionary::<Int32Type>().downcast_dict::<StringArray>().unwrap();
            text.into_iter().map(|v| v.unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn values_and_nulls_survive_a_stream(
        times in prop::collection::vec(prop::option::of(any::<i64>()), 0..200),
        names in prop::collection::vec("[a-z]{0,8}", 200),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("invocations.arrows");
        let rows: Vec<Invocation> = times
            .iter()
            .zip(&names)
            .enumerate()
            .map(|(number, (time, name))| Invocation {
                function: Arc::from(name.as_str()),
                scheduled: *time,
                ..invocation(number as i64)
            })
            .collect();
        write(&path, &rows);
        let (batches, whole) = read(&path);
        prop_assert!(whole);
        prop_assert_eq!(&scheduled(&batches), &times);
        prop_assert_eq!(&functions(&batches), &names[..times.len()]);
    }

    #[test]
    fn a_stream_cut_anywhere_keeps_its_whole_batches(cut in 0.0..1.0f64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("invocations.arrows");
        let mut writer = StreamWriter::create(&path, Epoch::from_unix_ns(7)).unwrap();
        let header = fs::metadata(&path).unwrap().len();
        let mut ends = vec![header];
        for batch in 0..5 {
            for row in 0..10 {
                writer.push(&invocation(batch * 10 + row)).unwrap();
            }
            writer.flush().unwrap();
            ends.push(fs::metadata(&path).unwrap().len());
        }
        drop(writer);
        let length = ends[ends.len() - 1];
        let keep = header + ((length - header) as f64 * cut) as u64;
        File::options().write(true).open(&path).unwrap().set_len(keep).unwrap();

        let (batches, whole) = read(&path);
        let complete = ends[1..].iter().filter(|end| **end <= keep).count();
        prop_assert!(!whole);
        prop_assert_eq!(scheduled(&batches).len(), complete * 10);
    }
}

#[test]
fn an_empty_table_is_a_whole_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("invocations.arrows");
    write(&path, &[]);
    let (batches, whole) = read(&path);
    assert!(batches.is_empty() && whole);
}

#[test]
fn what_is_no_stream_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("invocations.arrows");
    fs::write(&path, b"not arrow at all").unwrap();
    let result = read_stream(&path, |_| Ok(()));
    assert!(matches!(result, Err(RecordError::NotAStream { .. })));
}

#[test]
fn intervals_keep_their_nulls_and_their_order() {
    let rows = [
        Instance { idle: Some(vec![(1, 2), (5, 9)]), ..Instance::default() },
        Instance { idle: None, ..Instance::default() },
        Instance { idle: Some(vec![]), ..Instance::default() },
    ];
    let batch = Instance::batch(&rows, Epoch::UNIX);
    let idle = batch.column_by_name("idle").unwrap().as_list::<i32>();
    assert!(idle.is_null(1) && idle.value(2).is_empty());
    let first = idle.value(0);
    let end = first.as_struct().column_by_name("end").unwrap().as_primitive::<Int64Type>();
    assert_eq!(end.values(), &[2, 9]);
}
