//! The embedded platform: a small Lambda on one machine.
//!
//! *Mechanism* is below [`instance`]: sandboxes, cgroups, the Runtime API, metering. *Policy* is in
//! the crate `uncia-policy`: when to start, reuse, freeze and remove an instance. Between them the
//! dispatcher carries events one way and decisions the other; above it are the API and the log.

#![cfg(target_os = "linux")]

pub mod access;
mod answer_body;
mod api;
mod awake;
mod clock;
pub mod cluster;
pub mod config;
pub mod cpu_list;
mod dispatch;
mod failure;
pub mod features;
mod function;
mod ids;
pub mod instance;
mod json;
mod layer;
pub mod listen;
mod machines;
mod meterlog;
mod metrics;
mod monitor;
mod output;
mod page;
mod passage;
mod published;
mod reception;
mod remote;
pub mod runtime;
mod sandbox;
pub mod serve;
mod services;
pub mod settings;
mod store;
pub mod traces;
mod triggers;
