&[
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-DPmCpXwP.js", include_bytes!("assets/console-DPmCpXwP.js").as_slice()),
    ("assets/console-Dz7etrtS.css", include_bytes!("assets/console-Dz7etrtS.css").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
