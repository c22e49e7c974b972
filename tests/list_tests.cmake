# Writes LIST, which ctest includes: one ctest case for each test that PROGRAM (tests/runner.c) holds. tests/CMakeLists.txt
# runs it when PROGRAM was built. THREADED: the files whose tests have the label `threads` too.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${PROGRAM} --list OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" tests "${lines}")
list(REMOVE_DUPLICATES tests) # one that runs in several groups is one case, which runs it in each
set(text "")
foreach(test ${tests})
  string(REGEX REPLACE "\\..*" "" file "${test}")
  string(REPLACE " " "_" name "${test}")
  set(labels ${LABEL})
  if(file IN_LIST THREADED)
    list(APPEND labels threads)
  endif()
  string(APPEND text "add_test([==[${name}]==] [==[${PROGRAM}]==] [==[${test}]==])\n"
    "set_tests_properties([==[${name}]==] PROPERTIES LABELS [==[${labels}]==] TIMEOUT 900 WORKING_DIRECTORY [==[${FOLDER}]==] ENVIRONMENT [==[${ENVIRONMENT}]==])\n")
endforeach()
file(WRITE ${LIST} "${text}")
