# Every target is `python -m tools TARGET`, which is what to type where there is no make.
# make test ARGS="-k keyset" hands arguments on.
PYTHON ?= python3
ARGS ?=

.PHONY: demo visit test lint types format docs requirements conformance benchmark matrix atlas-data clean

demo:         ; @$(PYTHON) -m tools demo $(ARGS)
visit:        ; @$(PYTHON) -m tools visit $(ARGS)
test:         ; @$(PYTHON) -m tools test $(ARGS)
lint:         ; @$(PYTHON) -m tools lint $(ARGS)
types:        ; @$(PYTHON) -m tools types $(ARGS)
format:       ; @$(PYTHON) -m tools format $(ARGS)
docs:         ; @$(PYTHON) -m tools docs $(ARGS)
requirements: ; @$(PYTHON) -m tools requirements $(ARGS)
conformance:  ; @$(PYTHON) -m tools conformance $(ARGS)
benchmark:    ; @$(PYTHON) -m tools benchmark $(ARGS)
matrix:       ; @$(PYTHON) -m tools matrix $(ARGS)
atlas-data:   ; @$(PYTHON) -m tools atlas-data $(ARGS)
clean:        ; @$(PYTHON) -m tools clean $(ARGS)
