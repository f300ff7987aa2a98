// A client of Shardsmith in one file: C++17, libcurl 7.64, OpenSSL and nlohmann/json. main.cpp makes a command of it.
#pragma once

#include <curl/curl.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace shardsmith {
struct Failure : std::runtime_error { using runtime_error::runtime_error; };
/// An answer that refuses a request (RFC 9457). docs/reference/errors.md has all codes.
struct Problem : Failure {
  Problem(long status, const std::string& code, const std::string& detail)
      : Failure(code + " (" + std::to_string(status) + "): " + detail), status(status), code(code), detail(detail) {}
  long status; std::string code, detail;
};
/// There was no answer, or a damaged one, each time.
struct Broken : Failure { using Failure::Failure; };

/// Writes the next bytes of a body to a place, as many as fit or fewer; returns their number, 0 at the end.
using Source = std::function<std::size_t(char* to, std::size_t most)>;

/// A key: what is sent under one is stored once, however often it is sent.
inline std::string new_key() {
  std::random_device random;
  std::string key;
  while (key.size() < 32) key += std::to_string(random());
  return key;
}

inline const std::set<long> temporary{408, 429, 502, 503, 504, 507};
inline const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);  // before there are threads
struct Sha256 {
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
  Sha256() { EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr); }
  void update(const char* data, std::size_t size) { EVP_DigestUpdate(context.get(), data, size); }
  std::array<unsigned char, 32> finish() {
    std::array<unsigned char, 32> sum{};
    return EVP_DigestFinal_ex(context.get(), sum.data(), nullptr), sum;
  }
  std::string hex() {
    std::string text;
    for (unsigned char byte : finish()) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    return text;
  }
  /// As Content-Digest and Repr-Digest have it (RFC 9530).
  std::string field() {
    unsigned char text[45];
    EVP_EncodeBlock(text, finish().data(), 32);
    return "sha-256=:" + std::string(text, text + 44) + ":";
  }
};

/// Speaks with one service. Threads may share it.
class Client {
 public:
  explicit Client(const std::string& url = "http://127.0.0.1:8000", std::string token = "")
      : datasets(url.substr(0, url.find_last_not_of('/') + 1) + "/v1/datasets/"), token(std::move(token)) {}

  /// Appends rows, and returns their number once they are stored. `open` is called for each try; its body is sent while it
  /// is read. After an exception this may be repeated with the same key. Parameters are as in "split=test&evolve=widen".
  long long put(const std::string& dataset, const std::string& media_type, const std::string& key,
                const std::function<Source()>& open, const std::string& parameters = "") {
    const std::vector<std::string> headers{"Content-Type: " + media_type, "Idempotency-Key: " + key};
    return json([&] { return Request{"POST", dataset + "/records?" + parameters, headers, open(), {}}; }).at("num_records");
  }

  /// Makes a version of all that was appended, and returns its number once it can be read. While it is not done the
  /// same is asked again, which also takes over from a server that has died. Parameters: "num_shards=8&shuffle=true".
  std::string publish(const std::string& dataset, const std::string& key, const std::string& parameters = "") {
    const Request request{"POST", dataset + "/versions?" + parameters, {"Idempotency-Key: " + key}, {}, {}};
    return json([&] { return request; }).at("version");
  }

  /// The number of a version, or of "latest", once it can be read. Somebody else publishes it.
  std::string wait(const std::string& dataset, const std::string& version) {
    return json([&] { return Request{"GET", dataset + "/versions/" + version, {}, {}, {}}; }).at("version");
  }

  /// Hands each row of a split to `take`, as a line of JSON. After a broken connection it goes on with the next row.
  void rows(const std::string& dataset, const std::string& version, const std::string& split,
            const std::function<void(std::string_view row)>& take) {
    const std::string path = dataset + "/versions/" + wait(dataset, version) + "/records?split=" + split + "&offset=";
    long long taken = 0, left = 0;
    std::string rest;
    const auto receive = [&](const Answer& answer, std::string_view piece) {
      if (left < 0) left = std::stoll(answer.headers.at("record-count"));
      rest += piece;
      std::size_t begin = 0;
      for (std::size_t end; left > 0 && (end = rest.find('\n', begin)) != rest.npos; begin = end + 1) {
        ++taken, --left;
        take(std::string_view(rest).substr(begin, end - begin));
      }
      rest.erase(0, begin);
    };
    const auto prepare = [&] {  // a row that was cut off has no end
      return rest.clear(), left = -1, Request{"GET", path + std::to_string(taken), {}, {}, receive};
    };
    call(prepare, [&](const Answer& answer) {
      if (left > 0 || (left < 0 && answer.headers.at("record-count") != "0")) throw Broken("The rows were cut off.");
    });
  }

  /// Downloads a version into a folder: shards, and the files that describe them. What is there is not downloaded
  /// again, and what is there in part is completed. A file gets its name once its checksum is right.
  void get(const std::string& dataset, const std::string& version, const std::filesystem::path& folder) {
    const std::string files = dataset + "/versions/" + wait(dataset, version);
    std::istringstream sums;
    call([&] { return Request{"GET", files + "/SHA256SUMS", {}, {}, {}}; },
         [&](const Answer& answer) { sums.str(check(answer)); });
    std::filesystem::create_directories(folder);
    for (std::string sum, name; sums >> sum && std::getline(sums >> std::ws, name);) {
      if (std::filesystem::path(name).filename() != name || sum.size() != 64)
        throw std::runtime_error("This is no line of SHA256SUMS: " + sum + "  " + name);
      if (checksum(folder / name) != sum) download(files + "/files/" + name, sum, folder / name);
    }
  }

 private:
  struct Answer {
    long status = 0;
    std::map<std::string, std::string> headers;  // their names in lower case
    std::string content;
  };
  struct Request {
    std::string method, path;
    std::vector<std::string> headers;
    Source body;
    std::function<void(const Answer&, std::string_view piece)> receive;  // what is not to be held in memory
  };

  void download(const std::string& path, const std::string& sum, const std::filesystem::path& target) {
    const auto part = std::filesystem::path(target) += "." + sum.substr(0, 16) + ".part";
    std::ofstream file;
    bool is_first = false;
    const auto receive = [&](const Answer& answer, std::string_view piece) {
      if (std::exchange(is_first, false) && answer.status == 200) std::filesystem::resize_file(part, 0);  // all of it comes
      if (!file.write(piece.data(), static_cast<std::streamsize>(piece.size())).flush())
        throw std::runtime_error(part.string() + " cannot be written.");
    };
    const auto prepare = [&] {
      file.close(), file.clear(), file.open(part, std::ios::binary | std::ios::app), is_first = true;
      const auto size = std::filesystem::file_size(part);
      Request request{"GET", path, {}, {}, receive};  // a file's ETag is its checksum
      if (size) request.headers = {"Range: bytes=" + std::to_string(size) + "-", "If-Range: \"" + sum + "\""};
      return request;
    };
    try {
      call(prepare, [&](const Answer&) {
        if (checksum(part) == sum) return;
        std::filesystem::resize_file(part, 0);
        throw Broken(target.string() + " was damaged on its way.");
      });
    } catch (const Problem& problem) {
      if (problem.status == 416) std::filesystem::remove(part);  // it has all its bytes, but wrong ones
      throw;
    }
    std::filesystem::rename(part, target);
  }

  static std::string checksum(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    Sha256 sum;
    char buffer[1 << 16];
    while (file.read(buffer, sizeof buffer), file.gcount()) sum.update(buffer, static_cast<std::size_t>(file.gcount()));
    return file.eof() ? sum.hex() : "";
  }

  nlohmann::json json(const std::function<Request()>& prepare) {
    nlohmann::json value;
    call(prepare, [&](const Answer& answer) {
      value = nlohmann::json::parse(check(answer), nullptr, false);
      if (!value.is_object()) throw Broken("The answer was damaged on its way.");
    });
    return value;
  }

  /// Sends a request until its answer is there and taken without an exception, or refuses it for good.
  void call(const std::function<Request()>& prepare, const std::function<void(const Answer&)>& take) {
    std::chrono::milliseconds pause(200), longest(30000);
    for (int tries = 1;; ++tries, pause = std::min(pause * 2, longest)) {
      Answer answer;
      bool may_pass = true;
      try {
        answer = exchange(prepare());
        if (answer.status >= 300) {
          auto problem = nlohmann::json::parse(answer.content, nullptr, false);
          if (!problem.is_object()) problem = nlohmann::json::object();  // a proxy answers
          const std::string code = problem.value("code", "no_problem_document");
          may_pass = answer.headers.count("retry-after") || temporary.count(answer.status) || code == "digest_mismatch";
          throw Problem(answer.status, code, problem.value("detail", ""));
        }
        if (answer.status != 202) return take(answer);
        tries = 0;  // a publication is under way
      } catch (const Failure& failure) {
        if (tries == 10 || !may_pass) throw;
        std::clog << failure.what() << " (try " << tries << " of 10)\n";
      }
      const long seconds = std::strtol(answer.headers["retry-after"].c_str(), nullptr, 10);
      std::this_thread::sleep_for(seconds > 0 ? std::chrono::seconds(seconds) : pause);
    }
  }

  static const std::string& check(const Answer& answer) {
    Sha256 sum;
    sum.update(answer.content.data(), answer.content.size());
    const auto said = answer.headers.find("repr-digest");
    if (answer.content.empty() || (said != answer.headers.end() && said->second != sum.field()))
      throw Broken("The answer was damaged on its way.");
    return answer.content;
  }

  Answer exchange(const Request& request) {
    // A handle that is used again after a failed upload with a trailer writes where it must not (libcurl 7.88).
    const std::unique_ptr<CURL, void (*)(CURL*)> curl{curl_easy_init(), curl_easy_cleanup};
    Exchange now{request, curl.get(), {}, {}, {}};
    const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(now.curl, option, value); };
    curl_slist* headers = curl_slist_append(nullptr, "Accept-Encoding: identity");  // digests are of what is sent
    const auto add = [&](const std::string& line) { headers = curl_slist_append(headers, line.c_str()); };
    for (const auto& line : request.headers) add(line);
    if (!token.empty()) add("Authorization: Bearer " + token);
    set(CURLOPT_URL, (datasets + request.path).c_str());
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // it has trailers
    set(CURLOPT_CONNECTTIMEOUT, 10L), set(CURLOPT_LOW_SPEED_LIMIT, 1L), set(CURLOPT_LOW_SPEED_TIME, 120L);
    set(CURLOPT_HEADERFUNCTION, &Exchange::take_header), set(CURLOPT_HEADERDATA, &now);
    set(CURLOPT_WRITEFUNCTION, &Exchange::take_content), set(CURLOPT_WRITEDATA, &now);
    if (request.body) {
      add("Expect:"), add("Transfer-Encoding: chunked"), add("Trailer: Content-Digest");
      set(CURLOPT_UPLOAD, 1L), set(CURLOPT_READFUNCTION, &Exchange::give_body), set(CURLOPT_READDATA, &now);
      set(CURLOPT_TRAILERFUNCTION, &Exchange::give_trailer), set(CURLOPT_TRAILERDATA, &now);
    } else if (request.method == "POST")
      set(CURLOPT_POSTFIELDS, ""), add("Content-Type:");
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str()), set(CURLOPT_HTTPHEADER, headers);
    const CURLcode status = curl_easy_perform(now.curl);
    curl_slist_free_all(headers);
    if (now.failure) std::rethrow_exception(now.failure);
    if (status != CURLE_OK) throw Broken(curl_easy_strerror(status));
    curl_easy_getinfo(now.curl, CURLINFO_RESPONSE_CODE, &now.answer.status);
    return std::move(now.answer);
  }

  /// One request and its answer. An exception may not pass through libcurl, so it waits in `failure`.
  struct Exchange {
    const Request& request;
    CURL* curl;
    Answer answer;
    Sha256 sum;
    std::exception_ptr failure;

    static std::size_t give_body(char* to, std::size_t size, std::size_t count, Exchange* now) try {
      const std::size_t got = now->request.body(to, size * count);
      return now->sum.update(to, got), got;
    } catch (...) {
      now->failure = std::current_exception();
      return CURL_READFUNC_ABORT;
    }
    static int give_trailer(curl_slist** trailers, Exchange* now) {
      *trailers = curl_slist_append(*trailers, ("Content-Digest: " + now->sum.field()).c_str());
      return CURL_TRAILERFUNC_OK;
    }
    static std::size_t take_header(char* data, std::size_t size, std::size_t count, Exchange* now) {
      const std::string line(data, size * count);
      const auto colon = line.find(':'), first = line.find_first_not_of(" \t", colon + 1);
      if (line.rfind("HTTP/", 0) == 0) return now->answer.headers.clear(), line.size();  // an interim answer came before
      std::string name = line.substr(0, colon);
      for (char& letter : name) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
      if (colon != line.npos) now->answer.headers[name] = line.substr(first, line.find_last_not_of(" \t\r\n") + 1 - first);
      return line.size();
    }
    static std::size_t take_content(char* data, std::size_t, std::size_t count, Exchange* now) try {
      auto& answer = now->answer;
      curl_easy_getinfo(now->curl, CURLINFO_RESPONSE_CODE, &answer.status);
      const bool is_awaited = now->request.receive && answer.status < 300 && answer.status != 202;
      is_awaited ? now->request.receive(answer, {data, count}) : void(answer.content.append(data, count));
      return count;
    } catch (...) {
      now->failure = std::current_exception();
      return 0;
    }
  };

  const std::string datasets, token;
};
}  // namespace shardsmith
