//! Certificates really served: the product with real parts around it.
//!
//! ```text
//! cargo test --test e2e              the suite, on a stack of its own
//! cargo test --test e2e -- --stack   the stack alone, until Ctrl-C
//! cargo test --test e2e -- --cluster the suite against the cluster that KUBECONFIG names
//! ```

mod reach;
mod stack;
mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match arguments.first().map(String::as_str) {
        // Flags, since `cargo test cluster` hands that word to every test.
        Some("--stack") => runtime.block_on(stack::stay()),
        Some("--cluster") => runtime.block_on(suite::on_a_cluster()),
        _ => runtime.block_on(suite::on_a_stack()),
    }
}
