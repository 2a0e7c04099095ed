//! The tables, column by column.
//!
//! A declaration gives each column its Rust type, Arrow kind, unit, null rule and meaning. Times
//! are nanoseconds since the run's epoch (the schema's metadata carries it); in a platform's own
//! log the epoch is the Unix epoch.

use arrow_array::{ArrayRef, RecordBatch};

use crate::column::{
    BoolColumn, Column, ColumnKind, Float64Column, IdColumn, Int64Column, IntervalsColumn,
    MoneyColumn, Phase, PhasesColumn, QuantityColumn, Text, TextColumn, Traffic, TrafficColumn,
    Value,
};
use crate::stream::Table;

macro_rules! kind_of {
    (Text) => {
        ColumnKind::Text
    };
    (Id) => {
        ColumnKind::Id
    };
    (Int64) => {
        ColumnKind::Int64
    };
    (Float64) => {
        ColumnKind::Float64
    };
    (Bool) => {
        ColumnKind::Bool
    };
    (Quantity) => {
        ColumnKind::Quantity
    };
    (Money) => {
        ColumnKind::Money
    };
    (Intervals) => {
        ColumnKind::Intervals
    };
    (Phases) => {
        ColumnKind::Phases
    };
    (Traffic) => {
        ColumnKind::Traffic
    };
}
macro_rules! column_of {
    (Text) => {
        TextColumn
    };
    (Id) => {
        IdColumn
    };
    (Int64) => {
        Int64Column
    };
    (Float64) => {
        Float64Column
    };
    (Bool) => {
        BoolColumn
    };
    (Quantity) => {
        QuantityColumn
    };
    (Money) => {
        MoneyColumn
    };
    (Intervals) => {
        IntervalsColumn
    };
    (Phases) => {
        PhasesColumn
    };
    (Traffic) => {
        TrafficColumn
    };
}
macro_rules! value_of {
    (Text) => { Text };
    (Id) => { String };
    (Int64) => { i64 };
    (Float64) => { f64 };
    (Bool) => { bool };
    (Quantity) => { i128 };
    (Money) => { i128 };
    (Intervals) => { Vec<(i64, i64)> };
    (Phases) => { Vec<Phase> };
    (Traffic) => { Vec<Traffic> };
}
macro_rules! field_type {
    ($kind:ident always) => { value_of!($kind) };
    ($kind:ident null $rule:literal) => { Option<value_of!($kind)> };
}
macro_rules! rule_of {
    (always) => {
        ""
    };
    (null $rule:literal) => {
        $rule
    };
}
macro_rules! is_nullable {
    (always) => {
        false
    };
    (null $rule:literal) => {
        true
    };
}

macro_rules! table {
    (
        $(#[$doc:meta])*
        $row:ident, $builder:ident, $name:literal, {
            $( $field:ident : $kind:ident [$($null:tt)+] $unit:literal, $meaning:literal; )+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $row {
            $( #[doc = $meaning] pub $field: field_type!($kind $($null)+), )+
        }

        #[doc = concat!("Collects rows of the table `", $name, "` into a record batch.")]
        ///
        /// A row can also be set column by column, see
        /// [`StreamWriter::push_with`](crate::StreamWriter::push_with).
        pub struct $builder {
            appended: usize,
            $( #[doc = $meaning] pub $field: column_of!($kind), )+
        }

        impl Table for $row {
            type Builder = $builder;
            const NAME: &'static str = $name;
            const COLUMNS: &'static [Column] = &[
                $( Column {
                    name: stringify!($field),
                    kind: kind_of!($kind),
                    nullable: is_nullable!($($null)+),
                    unit: $unit,
                    null_rule: rule_of!($($null)+),
                    meaning: $meaning,
                }, )+
            ];

            fn builder() -> $builder {
                $builder { appended: 0, $( $field: <column_of!($kind)>::new(), )+ }
            }

            fn set(&self, builder: &mut $builder) {
                let row = builder.appended;
                $( self.$field.append_to(&mut builder.$field, row); )+
            }

            fn end_row(builder: &mut $builder) {
                builder.appended += 1;
            }

            fn pending(builder: &$builder) -> usize {
                builder.appended
            }

            fn finish(builder: &mut $builder, schema: &arrow_schema::SchemaRef) -> RecordBatch {
                let rows = std::mem::take(&mut builder.appended);
                let columns: Vec<ArrayRef> = vec![ $( builder.$field.finish(rows), )+ ];
                RecordBatch::try_new(schema.clone(), columns)
                    .expect("the builder and the schema come from one declaration")
            }
        }
    };
}

table! {
    /// One attempt to invoke a function.
    Invocation, InvocationBuilder, "invocations", {
        run: Text [null "in a platform's own log, which belongs to no run"] "", "the run that the row belongs to";
        experiment: Text [null "in a platform's own log, and in imported traces"] "", "the experiment within the run";
        platform: Text [null "when the platform is not known"] "", "the platform that was asked";
        function: Text [always] "", "the function invoked";
        invocation: Id [always] "", "identifies the invocation; unique in a run together with `attempt`";
        request_id: Id [null "when the platform gave none"] "", "the platform's own identifier of the request";
        attempt: Int64 [always] "count", "1 for the first attempt; retries and requeues count up";
        parent: Id [null "when no invocation caused this one"] "", "the invocation that caused this one (chains)";
        stage: Text [null "outside chains"] "", "the stage of a chain";
        burst: Int64 [null "when the arrival process has no bursts"] "count", "number of the burst, from 0";
        open_loop: Bool [null "when nothing is known of the client"] "", "whether the send time was fixed before the run";
        scheduled: Int64 [null "when no send time was intended (traces)"] "ns", "when the request should have been sent";
        sent: Int64 [null "when it was never sent"] "ns", "when the client began to act on the request: to write it, or to connect for it";
        connected: Int64 [null "when no connection was made for this request"] "ns", "when the new connection stood";
        first_byte: Int64 [null "when no answer came, or the request was accepted and not waited for (HTTP 202)"] "ns", "when the head of the answer had arrived";
        received: Int64 [null "when the answer did not arrive in full, or the request was accepted and not waited for (HTTP 202)"] "ns", "when the last byte of the answer had arrived";
        connection_reused: Bool [null "when no connection was used"] "", "whether the connection had served a request before";
        request_bytes: Int64 [null "when not sent"] "bytes", "body of the request";
        response_bytes: Int64 [null "when no answer came"] "bytes", "body of the answer";
        outcome: Text [always] "", "ok, function_error, throttled, timeout, transport_error or preempted";
        status: Int64 [null "when there was no HTTP answer"] "", "HTTP status";
        error: Id [null "when the outcome is ok"] "", "what went wrong, in words";
        start: Text [null "when neither platform nor function reports it"] "", "cold, restored, thawed or warm";
        instance: Text [null "when neither platform nor function reports it"] "", "the instance that served it";
        shared: Bool [null "when the platform does not say"] "", "whether others ran in the instance meanwhile, so that its usage is not this invocation's alone";
        started: Int64 [null "when the platform does not say, or it never ran"] "ns", "when the handler was given the request, by the platform's clock";
        ended: Int64 [null "when the platform does not say, or it never ran"] "ns", "when the handler's answer was there, by the platform's clock";
        queued: Int64 [null "when the platform does not say"] "ns", "waited for an instance, initialization not included";
        initialization: Int64 [null "when no instance was started for it, or the platform does not say"] "ns", "start of the instance that this request waited for";
        execution: Int64 [null "when neither platform nor function reports it, or it never ran"] "ns", "ended - started; without the platform's times, as the function itself measured it";
        billed: Int64 [null "when the platform does not say"] "ns", "billed duration as the platform itself says";
        allocated_cpu: Int64 [null "when not known"] "micro-vCPU", "CPU allocated to the instance";
        allocated_memory: Int64 [null "when not known"] "bytes", "memory allocated to the instance";
        cpu_user: Int64 [null "when not measured"] "ns", "CPU time in user mode during the invocation";
        cpu_system: Int64 [null "when not measured"] "ns", "CPU time in the kernel during the invocation";
        memory_avg: Int64 [null "when not measured"] "bytes", "memory in use, averaged over the execution";
        memory_peak: Int64 [null "when not measured"] "bytes", "most memory in use during the execution";
        throttled_count: Int64 [null "when not measured"] "count", "periods in which the CPU quota was exhausted";
        throttled_time: Int64 [null "when not measured"] "ns", "time during which the quota held the instance back";
        reserved_cpu: Int64 [null "when the platform has no such knob"] "micro-vCPU", "CPU reserved";
        spot_cpu: Int64 [null "when the platform has no such knob"] "micro-vCPU", "CPU that may be used when others leave it idle";
        preemptible: Bool [null "when the platform has no such knob"] "", "whether its memory may be taken back";
        qos: Text [null "when the platform has no such knob"] "", "interactive or batch";
        reserved_cpu_time: Int64 [null "when not measured"] "ns", "CPU time used on reserved CPUs, their idle time included";
        borrowed_cpu_time: Int64 [null "when not measured"] "ns", "CPU time used outside the reservation";
        lent_cpu_time: Int64 [null "when not measured"] "ns", "reserved CPU time that others used";
        lent_memory_avg: Int64 [null "when not measured"] "bytes", "reserved memory that others used, averaged over the execution";
        worker: Text [null "when the platform does not say"] "", "the worker that it ran on";
        phases: Phases [null "when not known: only made traces say"] "ns, count, bytes", "what the invocation does, one phase after the other: how long each lasts while its threads have a CPU each, the threads that run (0 sleeps), the memory held; the durations add up to the execution on an idle machine";
        services: Traffic [null "when its function reaches no service, `shared` is true, its server was left with an earlier request unanswered, or the platform does not count"] "bytes", "what passed between its instance and each service that its function reaches, from the beginning of the invocation to its end: what the instance sent and received on the connections, protocol included";
        cpu_wait: Int64 [null "when not asked for, `shared` is true, or threads that ended meanwhile took their waiting with them"] "ns", "time that its threads could have run and waited for a CPU, added up; time that a quota held them back is in `throttled_time` alone";
        page_faults: Int64 [null "when not asked for, `shared` is true, or the kernel does not count for groups here"] "count", "page faults during the invocation, minor and major";
        context_switches: Int64 [null "as `page_faults`"] "count", "how often a CPU went from one of its threads to another thread";
        cycles: Int64 [null "as `page_faults`, or the CPU shows no such counter here"] "count", "CPU cycles, in user mode and in the kernel";
        instructions: Int64 [null "as `cycles`"] "count", "instructions executed";
        branch_misses: Int64 [null "as `cycles`"] "count", "branches that the CPU mispredicted";
        llc_misses: Int64 [null "as `cycles`"] "count", "accesses that missed the last level of caches";
    }
}

table! {
    /// A named interval within an invocation or in the life of an instance.
    Span, SpanBuilder, "spans", {
        run: Text [null "in a platform's own log"] "", "the run that the row belongs to";
        invocation: Id [null "when it belongs to an instance only"] "", "the invocation that it is part of";
        instance: Text [null "when it belongs to no instance"] "", "the instance that it is part of";
        name: Text [always] "", "what took the time";
        start: Int64 [always] "ns", "when it began";
        end: Int64 [always] "ns", "when it ended";
        clock: Text [always] "", "whose clock: client, platform, function, or kernel-ID, that of functions on one running kernel";
    }
}

table! {
    /// The life of an instance.
    Instance, InstanceBuilder, "instances", {
        run: Text [null "in a platform's own log"] "", "the run that the row belongs to";
        platform: Text [null "when not known"] "", "the platform that it ran on";
        function: Text [always] "", "the function that it ran";
        instance: Text [always] "", "identifies the instance";
        started: Int64 [always] "ns", "when its start began";
        initialized: Int64 [null "when it never became ready"] "ns", "when it was ready for a request";
        ended: Int64 [null "while it lives"] "ns", "when it was gone";
        end_reason: Text [null "while it lives"] "", "keep_alive, scaled_down, evicted, preempted, timeout, out_of_memory, exit, shutdown, update, delete, init_error or crash";
        start: Text [null "when not known"] "", "cold or restored";
        allocated_cpu: Int64 [null "when not known"] "micro-vCPU", "CPU allocated";
        allocated_memory: Int64 [null "when not known"] "bytes", "memory allocated";
        invocations: Int64 [null "when not known"] "count", "invocations that it served";
        idle: Intervals [null "when not known"] "ns", "intervals in which it served nothing";
        idle_cpu: Int64 [null "when not measured"] "ns", "CPU time that it used while it served nothing, which nobody was billed for";
        worker: Text [null "when the platform does not say"] "", "the worker that it ran on";
        cgroup: Id [null "when the platform does not say, or it has none"] "", "its control group, by its path in the mounted tree: in that of version 2, where its pressure and events are, if it is in one";
        hint_idle: Int64 [null "when its platform reads no hints, while it lives, and after its worker crashed"] "ns", "how long of its idle time it was there on the account of hints, which the tariff's idle price is for: started for one until its first request, or kept for one beyond its keep-alive";
    }
}

table! {
    /// A counter of the machine, or of a cgroup, at a time.
    Machine, MachineBuilder, "machine", {
        run: Text [null "outside a run"] "", "the run that the row belongs to";
        time: Int64 [always] "ns", "when it was read";
        counter: Text [always] "", "the counter's name, with its unit";
        cgroup: Text [null "when it concerns the whole machine"] "", "the cgroup that it was read from";
        value: Float64 [always] "as the counter's name says", "what it read";
        worker: Text [null "outside a cluster"] "", "the worker that it concerns";
        host: Text [null "when it is the machine that the run was started on"] "", "the machine that it was read on";
        monitor: Text [null "when none of `monitors` read it"] "", "the monitor that read it";
        instance: Text [null "when the cgroup is of no instance that the platform tells of"] "", "the instance that the cgroup is of";
        cpu: Int64 [null "when it is of all CPUs"] "", "the CPU that it is of, by the kernel's number";
        interval: Int64 [null "when the value is a level"] "ns", "the time until `time` in which the counter grew by the value";
    }
}

table! {
    /// What rows of the invocation table cost under a tariff.
    Bill, BillBuilder, "bill", {
        run: Text [null "when the rows are of several runs"] "", "the run that was billed";
        experiment: Text [null "when the rows are of several experiments"] "", "the experiment that was billed";
        function: Text [null "when the rows are of several functions"] "", "the function that was billed";
        invocation: Id [null "when the row is of a group"] "", "the invocation that was billed";
        tariff: Text [always] "", "the tariff's id";
        rows: Int64 [always] "count", "rows that were priced";
        billable_micro_vcpu_ns: Quantity [null "when nothing could be priced"] "micro-vCPU x ns", "CPU billed for";
        billable_byte_ns: Quantity [null "when nothing could be priced"] "bytes x ns", "memory billed for";
        used_micro_vcpu_ns: Quantity [null "when use was not measured"] "micro-vCPU x ns", "CPU used";
        used_byte_ns: Quantity [null "when use was not measured"] "bytes x ns", "memory used";
        fee_usd: Money [null "when nothing could be priced"] "USD", "invocation fees";
        rounding_usd: Money [null "when nothing could be priced"] "USD", "what granularities and minimums add";
        cost_usd: Money [null "when nothing could be priced"] "USD", "the bill";
    }
}

table! {
    /// Invocations of a function within a minute of a trace that tells no more than their number.
    Arrivals, ArrivalsBuilder, "arrivals", {
        run: Text [null "outside a run, as in imported traces"] "", "the run that the row belongs to";
        function: Text [always] "", "the function invoked";
        minute: Int64 [always] "min", "minute from the start of the trace, from 0; a function has one row for a minute at most, and none for a minute without an invocation or without data";
        count: Int64 [always] "count", "invocations that the trace counts in the minute";
        owner: Text [null "when the trace does not say"] "", "who owns the function: subscription, account or user";
        app: Text [null "when the trace knows no applications"] "", "the application that the function is part of";
        trigger: Text [null "when the trace does not say, or says several"] "", "what invokes the function, in the words of the trace";
        region: Text [null "when the trace does not say"] "", "where the function ran";
    }
}

table! {
    /// A statistic of the duration of a function or the memory of an application.
    Profile, ProfileBuilder, "profiles", {
        run: Text [null "outside a run, as in imported traces"] "", "the run that the row belongs to";
        function: Text [null "when the row is of a whole application"] "", "the function, named as in `arrivals`";
        owner: Text [null "when the trace does not say"] "", "who owns the function: subscription, account or user";
        app: Text [null "when the trace knows no applications"] "", "the application that the function is part of, or that the row is of";
        region: Text [null "when the trace does not say"] "", "where the function ran";
        minute: Int64 [null "when the row is of the whole trace"] "min", "where the interval that the row is of begins, from the start of the trace";
        minutes: Int64 [null "when the row is of the whole trace"] "min", "length of that interval";
        statistic: Text [always] "", "quantile, mean, minimum or maximum";
        quantile: Float64 [null "when the statistic is no quantile"] "", "which quantile, from 0 to 1";
        basis: Text [always] "", "what the statistic was taken over: invocations, or averages over periods such as 30s";
        duration: Int64 [null "when the row is of memory"] "ns", "execution";
        memory: Int64 [null "when the row is of duration"] "bytes", "memory allocated";
        count: Int64 [null "when the trace does not say"] "count", "invocations or samples that the statistic rests on: its weight";
    }
}

table! {
    /// A function of a made trace: what it stands for, and how its user has set it up.
    TraceFunction, TraceFunctionBuilder, "functions", {
        run: Text [null "outside a run"] "", "the run that the row belongs to";
        function: Text [always] "", "the function, named as in `invocations`";
        bb_function: Text [null "when it stands for none"] "", "the function of the benchmark suite whose parallelism it has";
        size: Text [null "when it stands for none"] "", "the input that this one is given: small, medium or large";
        qos: Text [always] "", "interactive or batch";
        allocated_cpu: Int64 [always] "micro-vCPU", "the most CPU that it may use (cpu-cap)";
        reserved_cpu: Int64 [always] "micro-vCPU", "CPU reserved";
        spot_cpu: Int64 [always] "micro-vCPU", "CPU that it may use when others leave it idle";
        allocated_memory: Int64 [always] "bytes", "the most memory that it may use (mem-cap)";
        preemptible: Bool [always] "", "whether its memory may be taken back";
        phases: Int64 [always] "count", "phases of an invocation";
        parallelism_avg: Float64 [always] "threads", "threads that run, averaged over an invocation";
        parallelism_max: Int64 [always] "threads", "threads that run, at most";
        invocations: Int64 [always] "count", "invocations in the trace";
    }
}

table! {
    /// What a predictor of branches or a cache of the processor made of a function's execution, part by part.
    Locality, LocalityBuilder, "locality", {
        run: Text [null "outside a run"] "", "the run that the row belongs to";
        function: Text [always] "", "the function, with its runtime and the parameters that it was given";
        structure: Text [always] "", "branch_predictor or last_level_cache";
        model: Text [always] "", "the predictor, or the cache by its size; pmu is the processor's own";
        bytes: Int64 [null "when it is the processor's own, whose size is not known"] "bytes", "size of its tables, or of the cache";
        simulated: Bool [always] "", "whether it was simulated; otherwise it was counted by the processor";
        state: Text [null "of caches and of the processor's own"] "", "what the predictor had learned: kept, all of the process before; cleared, nothing before each invocation; shared, what processes left that took turns";
        sharers: Int64 [always] "count", "processes that took turns, 1 unless `state` is shared";
        part: Int64 [always] "count", "of the process: 0 is its start, until the function is loaded, then come the invocations, from 1";
        until: Int64 [always] "count", "instructions that the process had executed where the row ends";
        instructions: Int64 [always] "count", "instructions that the row is of, one with rep once; of simulated caches as often as it repeats";
        repetitions: Int64 [null "of caches and of the processor's own"] "count", "repetitions of instructions with rep";
        accesses: Int64 [always] "count", "conditional branches, or accesses that reached the cache";
        misses: Int64 [always] "count", "branches mispredicted, or accesses that missed the cache";
    }
}
