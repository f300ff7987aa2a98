//! The client as a command.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use shardsmith::{checksum, new_key, Client};

const USAGE: &str = "put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]], publish DATASET [KEY [PARAMETERS]], \
                     wait DATASET VERSION, rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let url = env::var("SHARDSMITH_CLIENT_URL").unwrap_or_else(|_| "http://127.0.0.1:8000".to_string());
    let client = Client::new(&url, env::var("SHARDSMITH_CLIENT_TOKEN").ok().as_deref());
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let optional = |at: usize, otherwise| arguments.get(at).copied().unwrap_or(otherwise);
    let key = new_key();
    let mut out = io::stdout().lock();
    match arguments[..] {
        ["put", dataset, file, ..] if arguments.len() <= 6 => {
            let media_type = optional(3, "application/x-ndjson");
            let rows = put(&client, dataset, file, media_type, optional(4, &key), optional(5, ""))?;
            Ok(writeln!(out, "{rows} rows")?)
        }
        ["publish", dataset, ..] if arguments.len() <= 4 => {
            Ok(writeln!(out, "{}", client.publish(dataset, optional(2, &key), optional(3, ""))?)?)
        }
        ["wait", dataset, version] => Ok(writeln!(out, "{}", client.wait(dataset, version)?)?),
        ["rows", dataset, version, ..] if arguments.len() <= 4 => {
            Ok(client.rows(dataset, version, optional(3, "train"), |row| writeln!(out, "{row}"))?)
        }
        ["get", dataset, version, folder] => {
            client.get(dataset, version, Path::new(folder))?;
            Ok(writeln!(out, "{folder}")?)
        }
        _ => Err(USAGE.into()),
    }
}

fn put(
    client: &Client,
    dataset: &str,
    file: &str,
    media_type: &str,
    key: &str,
    parameters: &str,
) -> Result<u64, Box<dyn Error>> {
    let is_stream = file == "-";
    let mut was_sent = false;
    let sum =
        if is_stream { None } else { Some(checksum(Path::new(file)).map_err(|error| format!("{file}: {error}"))?) };
    Ok(client.put(dataset, media_type, key, parameters, sum, || -> io::Result<Box<dyn Read>> {
        if is_stream && was_sent {
            return Err(io::Error::new(io::ErrorKind::Other, "standard input cannot be sent again"));
        }
        was_sent = true;
        Ok(if is_stream { Box::new(io::stdin().lock()) } else { Box::new(File::open(file)?) })
    })?)
}
