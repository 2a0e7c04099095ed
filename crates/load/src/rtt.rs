//! The round-trip time of the network: how long TCP takes to connect, which is one round trip.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::event::{Event, Rtt, When};
use crate::net::SocketAddress;
use crate::plan::Plan;

/// Between two probes of an endpoint, so that they do not meet the same burst of other traffic.
const PAUSE: Duration = Duration::from_millis(5);

/// Connects to each endpoint as often as the plan says, and closes at once. A probe that fails has
/// no time; that the endpoint can't be reached is the run's to find out and to record.
pub(crate) fn measure(
    plan: &Plan,
    when: When,
    on_event: &mut (dyn FnMut(&Event) + Send),
) -> Vec<Rtt> {
    let timeout = Duration::from_nanos(plan.connect_timeout_ns.unsigned_abs());
    let mut found = Vec::new();
    for endpoint in plan.endpoints.iter().filter(|_| plan.rtt_probes > 0) {
        // A socket in the file system has no network in between.
        let Some(SocketAddress::Tcp(address)) = endpoint.addresses.first() else {
            continue;
        };
        let mut rtt = Rtt { when, endpoint: endpoint.name.clone(), ..Rtt::default() };
        for probe in 0..plan.rtt_probes {
            if probe > 0 {
                std::thread::sleep(PAUSE);
            }
            let began = Instant::now();
            match TcpStream::connect_timeout(address, timeout) {
                Ok(_) => rtt.samples_ns.push(began.elapsed().as_nanos() as i64),
                Err(error) => {
                    rtt.error = Some(error.to_string());
                    break;
                }
            }
        }
        on_event(&Event::Rtt(rtt.clone()));
        found.push(rtt);
    }
    found
}
