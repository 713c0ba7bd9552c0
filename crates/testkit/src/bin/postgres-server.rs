//! Runs a PostgreSQL server until the standard input of this program is closed: `postgres-server [NAME=VALUE]…`, with
//! settings of the server. Prints the address of an empty database.

use std::io::{Read, Write};

use stepback_testkit::postgres::PostgresServer;

fn main() -> std::io::Result<()> {
    let settings: Vec<String> = std::env::args().skip(1).collect();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = PostgresServer::start_with(&settings);
    println!("{}", server.database());
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(server);
    Ok(())
}
