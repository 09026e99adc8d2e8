&[
    ("assets/console-BGJQvDjc.js", include_bytes!("assets/console-BGJQvDjc.js").as_slice()),
    ("assets/console-BfbrpvR4.css", include_bytes!("assets/console-BfbrpvR4.css").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
