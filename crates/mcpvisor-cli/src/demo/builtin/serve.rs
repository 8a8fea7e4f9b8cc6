//! Runs one built-in server.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use rmcp::{RoleServer, Service, ServiceExt};

use super::journal::Journal;
use super::{lab, notes, orders, weather};
use crate::exit::Exit;

/// Which server to run, and its files.
#[derive(Debug, clap::Args)]
pub(crate) struct BuiltinServer {
    /// Server
    #[arg(value_enum)]
    name: Name,

    /// Record process starts and held calls in this file
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// File of "notes"
    #[arg(long, value_name = "FILE", default_value = "notes.txt")]
    notes: PathBuf,

    /// Delay answers of held calls while this file exists
    #[arg(long, value_name = "FILE")]
    hold_while: Option<PathBuf>,

    /// Exit after the handshake while this file exists
    #[arg(long, value_name = "FILE")]
    flap_while: Option<PathBuf>,

    /// File of "orders"
    #[arg(long, value_name = "FILE", default_value = "orders.txt")]
    orders: PathBuf,

    /// Listen address of "orders"
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Drop all sessions when this file appears, and remove it
    #[arg(long, value_name = "FILE")]
    forget_when: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Name {
    Notes,
    Weather,
    Lab,
    Orders,
}

/// Serves on stdin and stdout until the client closes stdin; `orders` serves over HTTP.
pub(crate) fn run(server: BuiltinServer) -> Exit {
    let journal = Journal::new(server.journal);
    journal.started();
    // One thread is enough, and starts faster.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| {
            let served = runtime.block_on(async {
                match server.name {
                    Name::Notes => {
                        let notes = notes::Notes {
                            file: server.notes,
                            journal,
                            hold_while: server.hold_while,
                        };
                        serve(notes).await
                    }
                    Name::Weather => serve(weather::Weather::new(server.flap_while)).await,
                    Name::Lab => serve(lab::Lab).await,
                    Name::Orders => {
                        let orders = orders::Orders {
                            file: server.orders,
                        };
                        orders::serve(orders, server.listen, server.forget_when).await
                    }
                }
            });
            // A read of stdin may still block.
            runtime.shutdown_background();
            served
        });
    match served {
        Ok(()) => Exit::Ok,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "built-in server: {error}");
            Exit::Usage
        }
    }
}

async fn serve(server: impl Service<RoleServer>) -> Result<(), String> {
    let serving = server.serve(rmcp::transport::stdio()).await;
    let serving = serving.map_err(|error| error.to_string())?;
    serving.waiting().await.map_err(|error| error.to_string())?;
    Ok(())
}
