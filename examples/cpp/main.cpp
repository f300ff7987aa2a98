// The client as a command.
#include <cstdio>
#include <iostream>

#include "shardsmith.hpp"

static int run(const std::vector<std::string>& args) {
  const auto variable = [](const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return std::string(value && *value ? value : otherwise);
  };
  const auto argument = [&](std::size_t i, const std::string& otherwise) { return i < args.size() ? args[i] : otherwise; };
  shardsmith::Client client(variable("SHARDSMITH_CLIENT_URL", "http://127.0.0.1:8000"),
                            variable("SHARDSMITH_CLIENT_TOKEN", ""));
  const std::string verb = argument(0, ""), dataset = argument(1, ""), what = argument(2, "");
  if (verb == "put" && args.size() > 2) {
    bool is_sent = false;
    const auto open = [&]() -> shardsmith::Source {
      if (what == "-" && std::exchange(is_sent, true)) throw std::runtime_error("Standard input cannot be sent again.");
      const std::shared_ptr<FILE> file(what == "-" ? stdin : std::fopen(what.c_str(), "rb"),
                                       [](FILE* opened) { opened && opened != stdin ? std::fclose(opened) : 0; });
      if (!file) throw std::runtime_error(what + " cannot be read.");
      return [file, what](char* to, std::size_t most) {
        const std::size_t got = std::fread(to, 1, most, file.get());
        if (std::ferror(file.get())) throw std::runtime_error(what + " cannot be read.");
        return got;
      };
    };
    const auto key = argument(4, shardsmith::new_key());
    std::cout << client.put(dataset, argument(3, "application/x-ndjson"), key, open, argument(5, "")) << " rows\n";
  } else if (verb == "publish" && args.size() > 1) {
    std::cout << client.publish(dataset, argument(2, shardsmith::new_key()), argument(3, "")) << "\n";
  } else if (verb == "wait" && args.size() > 2) {
    std::cout << client.wait(dataset, what) << "\n";
  } else if (verb == "rows" && args.size() > 2) {
    client.rows(dataset, what, argument(3, "train"), [](std::string_view row) { std::cout << row << '\n'; });
  } else if (verb == "get" && args.size() > 3) {
    client.get(dataset, what, args[3]);
    std::cout << args[3] << "\n";
  } else {
    throw std::runtime_error("put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]], publish DATASET [KEY [PARAMETERS]],"
                             " wait DATASET VERSION, rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER");
  }
  return std::cout.flush() ? 0 : 1;
}

int main(int count, char** arguments) try {
  return run({arguments + 1, arguments + count});
} catch (const std::exception& failure) {
  std::cerr << failure.what() << "\n";
  return 1;
}
