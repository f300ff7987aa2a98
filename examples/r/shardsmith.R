# A client of Shardsmith in one file: R 4.0 with curl, jsonlite and openssl. Source it or copy it into your project; the
# last lines make a command of it.

shardsmith_key <- function() paste(openssl::rand_bytes(16), collapse = "")

# A client: a list of the functions put, publish, wait, rows and get. What a service refuses is an error of class
# shardsmith_problem with status, code and detail (RFC 9457; docs/reference/errors.md has all codes), and what got no
# answer, or a damaged one, in all of its tries is one of class shardsmith_broken.
shardsmith <- function(url = "http://127.0.0.1:8000", token = NULL) {
  most_tries <- 10
  temporary <- c(408, 429, 502, 503, 504, 507)
  chunk_bytes <- 65536L
  # Digests are of what is sent, so nothing is to be compressed.
  common <- c("Accept-Encoding" = "identity", "Expect" = "")
  if (!is.null(token)) common <- c(common, "Authorization" = paste("Bearer", token))

  fail <- function(class, message, ...) {
    stop(structure(class = c(class, "error", "condition"), list(message = message, call = NULL, ...)))
  }
  url <- sub("/$", "", url)
  broken <- function(message) fail("shardsmith_broken", message)
  digest <- function(sha256) paste0("sha-256=:", openssl::base64_encode(sha256), ":")
  sha256_of <- function(path) paste(as.raw(openssl::sha256(file(path))), collapse = "")
  chosen <- function(given, otherwise) if (is.null(given)) otherwise else given
  query <- function(parameters) {
    if (length(parameters) == 0) return("")
    paste(names(parameters), curl::curl_escape(unlist(parameters)), sep = "=", collapse = "&")
  }
  # Errors of curl are broken connections.
  connected <- function(expression) tryCatch(expression, error = function(e) broken(conditionMessage(e)))

  whole <- function(answer) {
    pieces <- list()
    while (length(piece <- answer$read()) > 0) pieces[[length(pieces) + 1]] <- piece
    content <- as.raw(unlist(pieces))
    said <- answer$headers[["repr-digest"]]
    if (length(content) == 0 || (!is.null(said) && said != digest(as.raw(openssl::sha256(content))))) {
      broken("The answer was damaged on its way.")
    }
    content
  }
  json <- function(answer) {
    text <- rawToChar(whole(answer))
    tryCatch(jsonlite::fromJSON(text), error = function(e) broken("The answer is no JSON."))
  }
  refuse <- function(answer) {
    problem <- tryCatch(json(answer), shardsmith_broken = function(e) list()) # empty where a proxy answers
    if (!is.list(problem)) problem <- list()
    code <- chosen(problem$code, "no_problem_document")
    detail <- chosen(problem$detail, "")
    message <- sprintf("%s (%d): %s", code, answer$status, detail)
    fail("shardsmith_problem", message, status = answer$status, code = code, detail = detail)
  }

  # Sends a request once. `take` is given the answer, with a function that reads on in its body.
  send <- function(method, path, headers, body, take) {
    handle <- curl::new_handle(customrequest = method, connecttimeout = 30, low_speed_limit = 1, low_speed_time = 120)
    failure <- NULL
    if (!is.null(body)) {
      source <- body()
      on.exit(close(source), add = TRUE)
      read <- function(size) {
        tryCatch(readBin(source, raw(), size), error = function(e) {
          failure <<- e
          stop(e)
        })
      }
      curl::handle_setopt(handle, upload = TRUE, readfunction = read)
      headers <- c(headers, "Transfer-Encoding" = "chunked")
    }
    curl::handle_setheaders(handle, .list = as.list(c(common, headers)))
    connection <- curl::curl(paste0(url, "/v1/datasets/", path), handle = handle)
    on.exit(close(connection), add = TRUE)
    tryCatch(connected(open(connection, "rbf")), shardsmith_broken = function(e) stop(chosen(failure, e)))
    said <- curl::handle_data(handle)
    take(list(
      status = said$status_code,
      headers = curl::parse_headers_list(said$headers),
      read = function() connected(readBin(connection, raw(), chunk_bytes))
    ))
  }

  # Sends a request until its answer is there and taken without an error, or refuses it for good.
  call <- function(method, path, take, headers = character(), body = NULL) {
    pause <- 0.2
    tries <- 0
    repeat {
      tries <- tries + 1
      after <- NULL
      outcome <- tryCatch(
        send(method, if (is.function(path)) path() else path, if (is.function(headers)) headers() else headers, body,
          function(answer) {
            after <<- answer$headers[["retry-after"]]
            if (answer$status == 202) {
              tries <<- 0 # a publication is under way
              return(NULL)
            }
            if (answer$status >= 300) refuse(answer)
            list(value = take(answer))
          }
        ),
        shardsmith_problem = function(e) e,
        shardsmith_broken = function(e) e
      )
      if (inherits(outcome, "error")) {
        refused <- inherits(outcome, "shardsmith_problem")
        again <- !refused || !is.null(after) || outcome$status %in% temporary || outcome$code == "digest_mismatch"
        if (tries == most_tries || !again) stop(outcome)
        message(sprintf("%s (again in %s s)", conditionMessage(outcome), chosen(after, pause)))
      } else if (!is.null(outcome)) {
        return(outcome$value)
      }
      Sys.sleep(if (is.null(after)) pause else as.numeric(after))
      pause <- min(pause * 2, 30)
    }
  }

  # Appends rows, and gives what is stored of them. `open_body` opens the body, for each try anew: a connection to read
  # bytes from, which is sent while it is read. After an error this may be repeated with the same key: what is sent
  # under one is stored once. `sha256` is that of the body, as raw bytes, if it is known; the service compares it with
  # what arrives. `parameters` are those of an append in docs/http.md: c(split = "test").
  put <- function(dataset, open_body, type = "application/x-ndjson", key = shardsmith_key(), parameters = character(),
                  sha256 = NULL) {
    headers <- c("Content-Type" = type, "Idempotency-Key" = key)
    if (!is.null(sha256)) headers <- c(headers, "Content-Digest" = digest(sha256))
    call("POST", paste0(dataset, "/records?", query(parameters)), json, headers, open_body)
  }

  # Makes a version of all that was appended, and gives its number once it can be read. While it is not done the same is
  # asked again, which also takes over from a server that has died in the middle of it. `parameters` are those of a
  # publication in docs/http.md: c(num_shards = 8, shuffle = "true").
  publish <- function(dataset, key = shardsmith_key(), parameters = character()) {
    call("POST", paste0(dataset, "/versions?", query(parameters)), json, c("Idempotency-Key" = key))$version
  }

  # The number of a version, or of "latest", once it can be read. Somebody else publishes it.
  wait <- function(dataset, version) call("GET", paste0(dataset, "/versions/", version), json)$version

  # Hands each row of a split to `take`, as lines of JSON, some at a time. After a broken connection it goes on with the
  # next row.
  rows <- function(dataset, version, take, split = "train") {
    records <- sprintf("%s/versions/%s/records?split=%s&offset=", dataset, wait(dataset, version), split)
    offset <- 0
    call("GET", function() sprintf("%s%.0f", records, offset), function(answer) {
      left <- as.numeric(chosen(answer$headers[["record-count"]], broken("How many rows there are is not said.")))
      rest <- raw()
      while (left > 0 && length(piece <- answer$read()) > 0) {
        rest <- c(rest, piece)
        last <- tail(which(rest == as.raw(10)), 1)
        if (length(last) == 0) next
        lines <- head(strsplit(rawToChar(rest[seq_len(last)]), "\n", fixed = TRUE)[[1]], left)
        rest <- rest[-seq_len(last)]
        Encoding(lines) <- "UTF-8"
        offset <<- offset + length(lines)
        left <- left - length(lines)
        take(lines)
      }
      if (left > 0) broken("The rows were cut off.")
    })
    invisible(offset)
  }

  # Downloads a version into a folder: shards, and the files that describe them. What is there is not downloaded again,
  # and what is there in part is completed. A file gets its name once its checksum is right.
  get <- function(dataset, version, folder) {
    files <- paste0(dataset, "/versions/", wait(dataset, version))
    dir.create(folder, showWarnings = FALSE, recursive = TRUE)
    sums <- call("GET", paste0(files, "/SHA256SUMS"), function(answer) rawToChar(whole(answer)))
    for (line in strsplit(sums, "\n", fixed = TRUE)[[1]]) {
      sum <- substr(line, 1, 64)
      name <- substring(line, 67)
      if (basename(name) != name || name %in% c("", ".", "..")) stop("This is no name of a file: ", name)
      target <- file.path(folder, name)
      if (!file.exists(target) || sha256_of(target) != sum) download(paste0(files, "/files/", name), sum, target)
    }
    invisible(folder)
  }

  download <- function(path, sum, target) {
    part <- sprintf("%s.%s.part", target, substr(sum, 1, 16))
    have <- function() if (file.exists(part)) file.size(part) else 0
    resume <- function() { # a file's ETag is its checksum
      if (have() == 0) return(character())
      c("Range" = sprintf("bytes=%.0f-", have()), "If-Range" = sprintf('"%s"', sum))
    }
    tryCatch(
      call("GET", path, function(answer) {
        out <- file(part, if (answer$status == 206) "ab" else "wb")
        tryCatch(
          while (length(piece <- answer$read()) > 0) writeBin(piece, out),
          finally = close(out)
        )
        if (sha256_of(part) == sum) return(TRUE)
        unlink(part)
        broken(paste(target, "was damaged on its way."))
      }, resume),
      shardsmith_problem = function(e) {
        if (e$status == 416) unlink(part) # it has all its bytes, but wrong ones
        stop(e)
      }
    )
    if (!file.rename(part, target)) stop("This file cannot be renamed: ", part)
  }

  list(put = put, publish = publish, wait = wait, rows = rows, get = get)
}

if (sys.nframe() == 0L) {
  given <- commandArgs(trailingOnly = TRUE)
  verb <- paste(c(given, "")[1], length(given))
  token <- Sys.getenv("SHARDSMITH_CLIENT_TOKEN")
  service <- shardsmith(
    Sys.getenv("SHARDSMITH_CLIENT_URL", "http://127.0.0.1:8000"), if (nzchar(token)) token
  )
  # "split=test&evolve=widen" as c(split = "test", evolve = "widen").
  parameters_of <- function(text) {
    pairs <- strsplit(strsplit(text, "&", fixed = TRUE)[[1]], "=", fixed = TRUE)
    values <- vapply(pairs, function(pair) curl::curl_unescape(pair[2]), "")
    stats::setNames(values, vapply(pairs, `[`, "", 1))
  }
  put_file <- function(dataset, path, type = "application/x-ndjson", key = shardsmith_key(), parameters = "") {
    sent <- FALSE
    open_body <- function() {
      if (path != "-") return(file(path, "rb"))
      if (sent) stop("Standard input cannot be sent again.")
      sent <<- TRUE
      file("stdin", "rb")
    }
    sha256 <- if (path != "-") as.raw(openssl::sha256(file(path)))
    cat(sprintf("%.0f rows\n", service$put(dataset, open_body, type, key, parameters_of(parameters), sha256)$num_records))
  }
  print_rows <- function(dataset, version, ...) {
    service$rows(dataset, version, function(lines) writeLines(lines, useBytes = TRUE), ...)
  }
  run <- function(how) do.call(how, as.list(given[-1]))
  usage <- "put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]], publish DATASET [KEY [PARAMETERS]], wait DATASET VERSION,
rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER"
  tryCatch(
    switch(verb,
      "put 3" = , "put 4" = , "put 5" = , "put 6" = run(put_file),
      "publish 2" = , "publish 3" = cat(run(service$publish), "\n", sep = ""),
      "publish 4" = cat(service$publish(given[2], given[3], parameters_of(given[4])), "\n", sep = ""),
      "wait 3" = cat(run(service$wait), "\n", sep = ""),
      "rows 3" = run(print_rows),
      "rows 4" = print_rows(given[2], given[3], split = given[4]),
      "get 4" = cat(run(service$get), "\n", sep = ""),
      stop(usage)
    ),
    error = function(e) {
      message(conditionMessage(e))
      quit(status = 1)
    }
  )
}
