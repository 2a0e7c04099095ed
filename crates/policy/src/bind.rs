/// Decides whether a request for which an instance is being started may be served by another that
/// is free before.
pub trait Binding: Send {
    fn late(&self) -> bool;
}

/// The request waits for the instance that was started for it, so that every request of a burst
/// on no instance is a cold start.
#[derive(Debug, Clone, Copy, Default)]
pub struct EarlyBinding;

impl Binding for EarlyBinding {
    fn late(&self) -> bool {
        false
    }
}

/// The request goes to whichever instance is free first, so that short requests of a burst share
/// the instances that are ready early, and the others were started for nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct LateBinding;

impl Binding for LateBinding {
    fn late(&self) -> bool {
        true
    }
}
