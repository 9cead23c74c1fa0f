//! `trustplane uninstall`.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};

use crate::{
    cli::{
        Exit,
        cluster::{self, block_on, namespace_name, served_namespace},
        confirm,
        output::{self, Output, print},
    },
    inject::{act::capability::StatusField, inventory},
    k8s::{api_error::ApiError, sandbox::Injecting},
    names::NAMESPACE,
    runtime::{
        controller::Unable,
        log::{self, LogFormat, Verbosity},
        printable::printable,
        shutdown, terminal as page,
    },
    uninstall::{
        execute::{self, Order, Removal},
        others::Others,
        plan::{Outlook, Pairs},
        printer::{self, Ended},
        running::{self, Running},
    },
};

/// Removes what trustplane keeps in Routes, so that you can remove trustplane itself.
///
/// You choose what happens to the certificates and keys that were injected: --routes=keep leaves them
/// in the Routes as the Routes' own, and --routes=clear removes them, so that the router serves its
/// default certificate. Certificates that trustplane did not inject stay in either case. The
/// annotations and .status.certificate are removed. This cannot be undone: what was kept is no
/// longer known as injected. With --dry-run alone you see what either choice would do.
///
/// What trustplane federate, authority and review keep, such as the keys of a trust domain, is not
/// touched. The command lists it, and prints how to remove it.
///
/// Stop the controller first. It is safe to run this again after an interruption.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See what would happen with either choice:
    trustplane uninstall --dry-run

  Stop the controller, remove what it injected, and then the rest as the command says:
    kubectl -n trustplane scale deployment/trustplane-inject --replicas=0
    trustplane uninstall --routes=clear

  From a script, in one namespace only:
    trustplane uninstall --routes=keep --namespace shop --yes -o json

Exit codes: 0 done, or shown with --dry-run; 1 a Route failed; 2 nothing was changed, because the
command line is wrong or incomplete, no API server answered, or a controller still runs; 130 stopped
before its end. NO_COLOR switches colours off.")]
pub struct Uninstall {
    /// What happens to the certificates and keys that were injected
    #[arg(long, value_enum, value_name = "WHAT")]
    routes: Option<Choice>,

    /// Only Routes of this namespace; repeat the flag, or separate several with commas [default: all namespaces]
    #[arg(
        long = "namespace",
        short = 'n',
        value_parser = served_namespace,
        value_delimiter = ',',
        value_name = "NAME"
    )]
    namespaces: Vec<String>,

    /// The namespace that trustplane is installed in [default: trustplane]
    #[arg(long, value_parser = namespace_name, value_name = "NAME")]
    install_namespace: Option<String>,

    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    /// Go on although a controller runs, and leave .status.certificate to it
    #[arg(long)]
    while_running: bool,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// `--routes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// They stay in the Routes, as the Routes' own
    Keep,
    /// They are removed, and the router serves its default certificate
    Clear,
}

impl From<Choice> for Pairs {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Keep => Self::Keep,
            Choice::Clear => Self::Clear,
        }
    }
}

impl Uninstall {
    pub fn run(self) -> anyhow::Result<()> {
        log::init(LogFormat::Text, Verbosity::Quiet);
        block_on(self.release())
    }

    async fn release(self) -> anyhow::Result<()> {
        let client = cluster::connect(cluster::config().await?)?;
        let found = inventory::routes(&client, &self.namespaces)
            .await
            .map_err(|error| Unable(no_routes(error)))?;
        let status = self.status_field();
        let outlook = Outlook::of(found, status);
        let (sandbox, others) =
            tokio::join!(running::sandbox(&client), Others::find(&client, self.installed_in()),);
        let found = Found { outlook, sandbox, others };

        let Some(pairs) = self.routes.map(Pairs::from) else {
            return self.without_a_choice(&found);
        };
        if self.output == Output::Text {
            print(&found.table(Some(pairs)))?;
        }
        let runs = match (sandbox, &self.install_namespace) {
            (Some(Injecting::Itself), _) => Err(Running::Sandbox),
            (_, Some(namespace)) => running::check(&client, namespace).await,
            (_, None) => running::check_everywhere(&client).await,
        };
        let runs = runs.err();
        if self.dry_run {
            return self.dry(&found, pairs, runs.map(|runs| runs.to_string()));
        }
        if let Some(runs) = runs.filter(|_| !self.while_running) {
            bail!(Unable(runs.into()));
        }
        if !self.yes && !found.outlook.is_nothing() {
            let question = printer::question(&found.outlook, pairs);
            confirm::confirm(&question, self.output, "Add --yes")?;
        }
        self.execute(&client, &found, Order { pairs, status }).await
    }

    /// A condition that can be read is kept. A controller that runs would put it back.
    fn status_field(&self) -> StatusField {
        if self.while_running { StatusField::Dropped } else { StatusField::Kept }
    }

    fn installed_in(&self) -> &str {
        self.install_namespace.as_deref().unwrap_or(NAMESPACE)
    }

    fn without_a_choice(&self, found: &Found) -> anyhow::Result<()> {
        print(&match self.output {
            Output::Text => found.table(None),
            Output::Json => found.document(None, None, self.installed_in()),
        })?;
        if found.outlook.is_nothing() {
            return self.print_next_steps(found);
        }
        let choose = "Choose what happens to the injected certificates and keys: --routes=keep or --routes=clear";
        if self.dry_run {
            output::say(&format!("Nothing was changed. {choose}."));
            return Ok(());
        }
        bail!(Unable(anyhow!("nothing was changed. {choose}")))
    }

    fn dry(&self, found: &Found, pairs: Pairs, runs: Option<String>) -> anyhow::Result<()> {
        if self.output == Output::Json {
            print(&found.document(Some(pairs), None, self.installed_in()))?;
        }
        output::say("Nothing was changed.");
        if let Some(runs) = runs.filter(|_| !self.while_running) {
            output::say(&format!("Without --dry-run this would be refused: {}.", printable(&runs)));
        }
        Ok(())
    }

    async fn execute(
        &self,
        client: &kube::Client,
        found: &Found,
        order: Order,
    ) -> anyhow::Result<()> {
        let stop = shutdown::on_signal().context("cannot handle signals")?;
        let routes = found.outlook.routes();
        let mut progress = Progress::of(routes.len());
        let ended =
            execute::execute(client, routes, order, &stop, |done| progress.print(done)).await;
        progress.end();
        let is_done = |(_, it): &(_, Removal)| matches!(it, Removal::Done | Removal::Gone);
        let all_done = ended.iter().all(is_done);
        let failed = ended.iter().any(|(_, outcome)| matches!(outcome, Removal::Failed(_)));
        match self.output {
            Output::Text if ended.is_empty() => {}
            Output::Text => print(&format!("\n{}", printer::result(&ended, output::width())))?,
            Output::Json => {
                let ended = ended.into_iter().collect();
                let pairs = Some(order.pairs);
                print(&found.document(pairs, Some(&ended), self.installed_in()))?;
            }
        }
        match (all_done, failed) {
            (true, _) => self.print_next_steps(found),
            (false, true) => bail!(Exit::Reported),
            (false, false) => bail!(Exit::Stopped),
        }
    }

    fn print_next_steps(&self, found: &Found) -> anyhow::Result<()> {
        match self.output {
            Output::Text if found.sandbox.is_some() => {
                let text = "This is the trustplane sandbox: there is nothing else to remove.";
                print(&format!("\n{}", page::paragraph(text, output::width())))
            }
            // With --namespace there may be Routes in others before anything is removed.
            Output::Text if self.namespaces.is_empty() => {
                let width = output::width();
                let others = &found.others;
                let rest = printer::next_steps(self.installed_in(), &others.authority, width);
                print(&format!("{}{rest}", others.next_steps(width)))
            }
            Output::Text | Output::Json => Ok(()),
        }
    }
}

/// The state before anything is changed.
struct Found {
    outlook: Outlook,
    sandbox: Option<Injecting>,
    others: Others,
}

impl Found {
    fn table(&self, pairs: Option<Pairs>) -> String {
        let width = output::width();
        let table = printer::table(&self.outlook, pairs, width);
        format!("{table}{}", self.others.notice(&self.outlook, width))
    }

    fn document(&self, pairs: Option<Pairs>, ended: Option<&Ended>, namespace: &str) -> String {
        printer::document(&self.outlook, pairs, ended, &self.others, namespace)
    }
}

/// A list of Routes is not found only if the API is missing.
fn no_routes(error: ApiError) -> anyhow::Error {
    match error {
        ApiError::NotFound => anyhow!(
            "this cluster has no Route API, so there are no Routes to change. Remove what you installed \
             with kubectl or helm"
        ),
        error => anyhow::Error::new(error).context("the Routes could not be listed"),
    }
}

/// Progress on stderr: often on a terminal, seldom in a log.
struct Progress {
    all: usize,
    watched: bool,
    printed: Instant,
}

impl Progress {
    fn of(all: usize) -> Self {
        Self { all, watched: io::stderr().is_terminal(), printed: Instant::now() }
    }

    fn print(&mut self, done: usize) {
        let pause = Duration::from_millis(if self.watched { 200 } else { 5_000 });
        if self.printed.elapsed() < pause {
            return;
        }
        self.printed = Instant::now();
        let (start, end) = if self.watched { ("\r", "") } else { ("", "\n") };
        eprint!("{start}{done} of {} Routes{end}", self.all);
        let _ = io::stderr().flush();
    }

    /// Wipes the line that was rewritten.
    fn end(&self) {
        if self.watched {
            eprint!("\r\x1b[K");
        }
    }
}
