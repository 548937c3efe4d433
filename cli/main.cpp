#include <string>
#include <vector>

#include "program.h"

int main(int argc, char** argv) { return ulpscope::cli::run_program(std::vector<std::string>(argv, argv + argc)); }
